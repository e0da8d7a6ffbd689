"""The core under chaos: random people, nodes and agents; every invariant after every record, every rule at every cycle.

Watched all the time: the state recounted from its rows (``invariants``), independent books of GPU time and lags (``books``), a
twin that verifies or trusts each batch and one that reads in bulk (``followers``), and that nothing placeable waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from apportion.core.horizon import instance
from apportion.core.policy.horizon import asking
from tests.core.books import Books
from tests.core.chaos import Chaos, Seeded
from tests.core.drains import Drains
from tests.core.followers import Conserving, FastTwin, Forgetful, Twin, check_refusal
from tests.core.invariants import Inspector
from tests.core.moved import Moved
from tests.core.outlook import Timeline
from tests.core.serving import Serving
from tests.core.story import Story
from tests.strategies import poison_bodies

T = TypeVar("T")

POLICIES = ("fair", "horizon", "fifo", "priority", "fair_tree", "drf")
SUBJECTS = (
    "ap.ev.ops.pool.defined", "ap.ev.agent-n1.node.heartbeat", "ap.ev.ops.workload.submitted", "ap.ev.core.clock.tick",
    "ap.ev.ops.nope", "ap.ev.ops", "ap.ev..x", "ap.dec.cycle", "", "ap.ev.ops.node.heartbeat.more",
    "ap.ev.\udcff.pool.defined", "ap.ev.agent-n1.pool.defined",
)  # fmt: skip


class Drawn:
    """Dice whose choices Hypothesis makes, and can shrink."""

    def __init__(self) -> None:
        self.data: st.DataObject | None = None

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        assert self.data is not None
        return self.data.draw(st.sampled_from(options))


class CoreMachine(RuleBasedStateMachine):
    """One story; each rule is one thing that somebody does."""

    def __init__(self) -> None:
        super().__init__()
        self.dice = Drawn()
        self.story = Story()
        self.chaos = Chaos(self.story, self.dice)
        conserving = Conserving()
        watchers = (Books(), Timeline(), Inspector(), Drains(), Moved(), Serving(), conserving, Twin(), Forgetful(), FastTwin())
        self.story.watchers = (self.chaos, *watchers)
        self.watching = conserving.watching()
        self.watching.__enter__()

    def teardown(self) -> None:
        self.watching.__exit__(None, None, None)

    def _do(self, data: st.DataObject, action: str, *, refusable: bool = False) -> None:
        self.dice.data = data
        before = self.story.core.snapshot() if refusable else b""
        refused, records = self.story.refused(), len(self.story.records)
        getattr(self.chaos, action)()
        if refusable and (self.story.refused(), len(self.story.records)) == (refused + 1, records + 1):
            check_refusal(before, self.story.core, self.story.records[-1])

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self._do(data, "begin")

    @rule(data=st.data())
    def minute(self, data: st.DataObject) -> None:
        self._do(data, "minute")

    @rule(data=st.data())
    def another_minute(self, data: st.DataObject) -> None:
        self._do(data, "minute")

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self._do(data, "step")

    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        self._do(data, "tick")

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self._do(data, "answer")

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self._do(data, "submit", refusable=True)

    @rule(data=st.data())
    def submit_more(self, data: st.DataObject) -> None:
        for _ in range(3):
            self._do(data, "submit")

    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        self._do(data, "report", refusable=True)

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        self._do(data, "beat", refusable=True)

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self._do(data, "withdraw", refusable=True)

    @rule(data=st.data())
    def money(self, data: st.DataObject) -> None:
        self._do(data, "money", refusable=True)

    @rule(data=st.data())
    def machine(self, data: st.DataObject) -> None:
        self._do(data, "machine", refusable=True)

    @rule(data=st.data(), action=st.sampled_from(["again", "forge", "stale_claim", "serve", "serve"]))
    def nonsense(self, data: st.DataObject, action: str) -> None:
        self._do(data, action, refusable=True)

    @rule(subject=st.sampled_from(SUBJECTS), body=poison_bodies())
    def poison(self, subject: str, body: bytes) -> None:
        before, refused = self.story.core.snapshot(), self.story.refused()
        self.story.send(subject, body)
        assert self.story.refused() == refused + 1, f"{body[:60]!r} on {subject!r} was taken"
        check_refusal(before, self.story.core, self.story.records[-1])

    @precondition(lambda self: self.story.records)
    @rule()
    def restart(self) -> None:
        self.story.restart()


def run(**options: Any) -> None:
    """Run the machine; deadlines are for the whole test, not for an example on a busy machine."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        CoreMachine, settings=settings(deadline=None, suppress_health_check=checks, print_blob=True, **options)
    )


def test_safety_every_invariant_holds_whatever_anybody_does() -> None:
    run(max_examples=25, stateful_step_count=30, derandomize=True, database=None)


@pytest.mark.slow
def test_safety_at_length() -> None:
    run(max_examples=400, stateful_step_count=120)


def play(
    seed: int, actions: int, policies: Sequence[str] = (), *, serving: Serving | None = None
) -> tuple[Books, Drains, Moved]:
    """Let chaos reign from a seed, with all watchers; the seed is in the message of what fails."""
    story, conserving = Story(), Conserving()
    chaos = Chaos(story, Seeded(seed), policies, serving=serving is not None)
    books, drains, moved = Books(), Drains(), Moved()
    watchers = (Timeline(), Inspector(), drains, moved, *([serving] if serving else []), conserving)
    watchers += (Twin(), Forgetful(), FastTwin())
    story.watchers = (chaos, books, *watchers)
    with conserving.watching():
        try:
            chaos.begin()
            for number in range(actions):
                chaos.act()
                if number % 25 == 24:
                    story.restart()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, seq {len(story.records)}: {error}") from error
    return books, drains, moved


@pytest.mark.parametrize("seed", [3, 14, 25, 33, 109])
def test_safety_over_a_long_seeded_story(seed: int) -> None:
    """Long enough to come to what matters: debts, evictions, places kept."""
    assert play(seed, actions=110)[0].preemptions > 0


def test_safety_when_who_has_nodes_kept_starts_on_others() -> None:
    """He is over before somebody else needs them; what was kept for him is kept no more."""
    assert play(1_029, actions=400)[0].preemptions > 0


def test_safety_while_work_goes_to_other_pools() -> None:
    """Who accepts several pools starts in another one, and comes back to where it waits; watched by everybody as the rest."""
    assert all(play(seed, actions=110)[0].visits > 2 for seed in (50, 109))


def test_safety_while_nodes_are_drained() -> None:
    """Runs are asked to leave, and drained nodes take what is over in time."""
    asked, taking = (play(seed, actions=110)[1] for seed in (197, 106))

    assert asked.drained > 0
    assert taking.placed > 0


@pytest.mark.parametrize("seed", [23, 28, 37])
def test_safety_while_services_breathe(seed: int) -> None:
    """Services are as large as their traffic says, after every cycle."""
    serving = Serving()
    play(seed, actions=110, serving=serving)

    assert serving.checked > 20
    assert serving.grown > 0
    assert serving.shrunk > 0


@pytest.mark.parametrize("seed", [1, 6])
def test_safety_where_the_planner_can_take_little(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, budgets, services and jobs beyond what it takes are left out from the end, and the core goes on."""
    for name, most in (("STEPS", 8), ("BUDGETS", 2), ("SERVICES", 1), ("JOBS", 3)):
        for place in (asking, instance):  # who asks, and who refuses
            monkeypatch.setattr(place, f"MAX_{name}", most)
    serving = Serving()
    play(seed, 110, ("horizon",), serving=serving)

    assert serving.checked > 20


def test_safety_while_runs_are_moved() -> None:
    """Runs make room for others and go on elsewhere."""
    moved = [play(seed, actions=110)[2].counts for seed in (33, 203)]

    assert all(counts["went on"] > 0 for counts in moved)


@pytest.mark.parametrize(
    ("policies", "seed"),
    [(("horizon",), 1), (("fifo",), 3), (("priority",), 7), (("fair_tree",), 5), (("drf",), 4), (POLICIES, 7)],
)
def test_safety_under_each_baseline_and_when_policies_change(policies: Sequence[str], seed: int) -> None:
    """Money, places and order hold whoever judges; those that may take do take."""
    taken = play(seed, 110, policies)[0].preemptions

    assert (taken > 0) == (policies[0] in ("priority", "drf") or len(policies) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("policies", [("horizon",), ("fifo",), ("priority",), ("fair_tree",), ("drf",), POLICIES])
@pytest.mark.parametrize("seed", range(2_000, 2_008))
def test_safety_under_baselines_over_longer_stories(policies: Sequence[str], seed: int) -> None:
    assert play(seed, 600, policies)[0].time_ms > 0


@pytest.mark.slow
@pytest.mark.parametrize("policies", [(), ("horizon",), POLICIES])
@pytest.mark.parametrize("seed", range(3_000, 3_006))
def test_safety_while_services_breathe_over_longer_stories(policies: Sequence[str], seed: int) -> None:
    serving = Serving()
    play(seed, 400, policies, serving=serving)

    assert serving.checked > 0 or seed == 3_005, "a story without a service"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_040))
def test_safety_over_longer_seeded_stories(seed: int) -> None:
    assert play(seed, actions=600)[0].preemptions > 0
