"""Several acceptable pools: nobody waits while a pool of his wish could start him, and everybody starts in the first that can.

Small clusters of three pools whose nodes differ, drawn at will; all watchers of the core's chaos look on: money, places, twins, and
that nothing placeable waits, in its home or elsewhere (``followers.Conserving``, with its own naive placement).
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.decisions import CycleBatch, RunPlaced
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.policy import visiting
from tests.core.books import Books
from tests.core.followers import Conserving, FastTwin, Forgetful, Twin, fitting
from tests.core.invariants import Inspector, asks_of
from tests.core.line import behind
from tests.core.outlook import Timeline
from tests.core.story import Story

POOLS = ("p", "q", "r")
NODES: dict[str, tuple[tuple[str, int], ...]] = {
    "p": (("p1", 4),), "q": (("q1", 4), ("q2", 2)), "r": (("r1", 2), ("r2", 2), ("r3", 2)),
}  # fmt: skip
BUDGETS = ("A", "B/x", "B/y")
BASELINES: tuple[Any, ...] = ("fair", "fair", "fair", "fifo", "priority", "fair_tree", "drf")


class FirstThatCan:
    """Whoever starts in a pool could not have started in one that it names before: there is no place for it even now."""

    def __init__(self, seen: Conserving) -> None:
        self.seen = seen
        self.visits = 0

    def after(self, core: Core, _record: Record, batch: CycleBatch | None) -> None:
        """Try each new run in the pools before its own."""
        state = core.state
        for decision in batch.decisions if batch is not None else ():
            if not isinstance(decision, RunPlaced) or decision.beneficiary:
                continue
            row = state.workload.row_of[decision.workload]
            asks = asks_of(state, row)
            names = [state.pool.keys[ask.pool] for ask in asks]
            self.visits += decision.pool != names[0]
            for number, ask in enumerate(asks[: names.index(decision.pool)]):
                kept, guest = self.seen.reservations[ask.pool], None if number == 0 else ask
                if fitting(state, row, kept, ask):
                    assert guest is not None, f"{decision} left its home, where there is room"
                    assert behind(state, self.seen.seen, kept, row, guest), f"{decision} passed a pool of its wish by"


class Cluster:
    """A story of three pools."""

    def __init__(self) -> None:
        self.conserving = Conserving()
        self.order = FirstThatCan(self.conserving)
        self.story = Story(Books(), Timeline(), Inspector(), self.conserving, self.order, Twin(), Forgetful(), FastTwin())
        self.made, self.running = 0, dict[str, str]()
        self.story.open()
        for pool in POOLS:
            self.story.tell(ev.PoolDefined(pool=pool))
            for path, share_ppm in (("A", 500_000), ("B", 500_000), ("B/x", 500_000), ("B/y", 500_000)):
                self.story.tell(ev.BudgetSet(pool=pool, budget=path, share_ppm=share_ppm))
            for node, gpus in NODES[pool]:
                self.story.tell(ev.NodeJoined(node=node, pool=pool, gpus=gpus, agent="agent"))

    def submit(self, pools: tuple[str, ...], budget: str, gpus: int, min_ms: int | None, limit_ms: int, priority: int) -> None:
        """Ask for something."""
        self.made += 1
        event = ev.WorkloadSubmitted(
            workload=f"w{self.made}", budget=budget, pools=pools, gpus_milli=gpus, min_runtime_ms=min_ms, grace_ms=0,
            expected_runtime_ms=limit_ms, priority=priority,
        )  # fmt: skip
        self.story.tell(event)

    def tick(self) -> None:
        """Let a minute pass and a cycle be decided; agents answer at once."""
        self.story.now_ms += 60_000
        for pool in POOLS:
            for node, _gpus in NODES[pool]:
                self.story.tell(ev.NodeHeartbeat(node=node, beat=self.story.now_ms), "agent")
        for decision in self.story.tick().decisions:
            if isinstance(decision, RunPlaced):
                self.running[f"{decision.workload}#{decision.run}"] = decision.pieces[0].node
                self.say(ev.RunStarted, f"{decision.workload}#{decision.run}")

    def say(self, event: type[Any], run: str, **fields: Any) -> None:
        """Let the agent report about a run."""
        workload, _, number = run.partition("#")
        self.story.tell(event(workload=workload, run=int(number), node=self.running[run], **fields), "agent")

    def end(self, number: int, outcome: Any) -> None:
        """Let some run end."""
        runs = [run for run in self.running if run in self.story.core.state.run.row_of]
        if runs:
            self.say(ev.RunFinished, runs[number % len(runs)], outcome=outcome)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.lists(st.sampled_from(POOLS), min_size=1, unique=True).map(tuple),
                  st.sampled_from(BUDGETS), st.sampled_from((250, 500, 1_000, 2_000, 2_000, 4_000, 6_000)),
                  st.sampled_from((None, 0, 60_000, 600_000)), st.sampled_from((0, 0, 300_000, 3_600_000)), st.integers(-1, 1)),
        st.tuples(st.just("end"), st.integers(0, 20), st.sampled_from(("succeeded", "failed", "stopped"))),
        st.tuples(st.just("tick")),
        st.tuples(st.just("tick")),
    ),
    min_size=4, max_size=40,
)  # fmt: skip


def play(steps: list[tuple[Any, ...]], policy: Any = "fair", backfill: Any = None) -> Cluster:
    """Tell the steps to a cluster."""
    cluster = Cluster()
    for pool in POOLS:
        cluster.story.tell(ev.PolicyActivated(pool=pool, policy=policy, backfill=backfill, quantum_ms=300_000))
    with cluster.conserving.watching():
        for step in steps:
            getattr(cluster, step[0])(*step[1:])
        cluster.tick()
    return cluster


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
@given(STEPS, st.sampled_from(BASELINES))
def test_nobody_waits_while_a_pool_of_his_wish_could_start_him(steps: list[tuple[Any, ...]], policy: Any) -> None:
    assert play(steps, policy).conserving.reservations, "nobody looked at the last cycle"


@pytest.mark.slow
@settings(max_examples=1_500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.sampled_from(BASELINES))
def test_nobody_waits_while_a_pool_of_his_wish_could_start_him_at_length(steps: list[tuple[Any, ...]], policy: Any) -> None:
    assert play(steps, policy).conserving.reservations, "nobody looked at the last cycle"


def test_the_stories_have_visitors() -> None:
    """What the properties are about does happen."""
    jobs = [("submit", ("p", "q", "r"), budget, 2_000, None, 0, 0) for budget in BUDGETS * 3]

    assert play([*jobs, ("tick",), ("end", 0, "succeeded"), ("tick",)]).order.visits > 3


def test_the_plan_of_a_pool_holds_for_guests() -> None:
    """With conservative backfill a guest starts only where the plan leaves GPUs for all of its time, and is in it from then on."""
    cluster = Cluster()
    cluster.story.watchers = (Inspector(),)  # the others know no plan
    cluster.story.tell(ev.PolicyActivated(pool="r", backfill="conservative"))
    cluster.submit(("p",), "A", 4_000, None, 0, 0)
    cluster.submit(("r",), "A", 2_000, None, 600_000, 0)
    cluster.tick()
    cluster.submit(("r",), "B/x", 6_000, None, 0, 0)  # planned for when that has ended
    cluster.submit(("p", "r"), "B/y", 2_000, None, 0, 1)
    cluster.submit(("p", "r"), "B/y", 2_000, None, 300_000, 0)
    cluster.tick()
    state = cluster.story.core.state
    running = sorted(state.workload.keys[int(row)] for row in state.run.workload[state.run.live_rows()])

    assert running == ["w1", "w2", "w5"]


def test_many_guests_of_a_shape_that_finds_no_place_are_looked_at_once() -> None:
    """However many knock: the searches of a cycle are those of different shapes, and of starts."""
    cluster = Cluster()
    cluster.story.watchers = ()
    cluster.submit(("p",), "A", 4_000, None, 0, 0)
    for _number in range(300):
        cluster.submit(("p", "q"), "B/x", 4_000, None, 0, 0)
    with mock.patch.object(visiting, "find_gpus", wraps=visiting.find_gpus) as searches:
        cluster.tick()
        cluster.submit(("q",), "A", 250, None, 0, 0)
        cluster.tick()

    assert len(cluster.running) == 3
    assert searches.call_count <= 3
