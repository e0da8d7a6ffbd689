"""A pool that is always in pieces: small movable jobs that end at odd times, and gangs that want whole nodes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from apportion.core import decisions as d
from apportion.core import events as ev
from apportion.core.engine import Core
from apportion.core.envelope import Record
from tests.core.books import Books
from tests.core.followers import Conserving, FastTwin, Forgetful, Twin
from tests.core.invariants import Inspector
from tests.core.moved import Moved
from tests.core.outlook import Timeline
from tests.core.story import Story

NODES = ("n1", "n2", "n3", "n4")


class Agents:
    """Start what is placed at once, stop what is asked to a little later, and end the small jobs when they like."""

    def __init__(self, story: Story, dice: random.Random) -> None:
        self.story, self.dice = story, dice
        self.live: dict[str, str] = {}  # run -> lead
        self.stopping: dict[str, None] = {}

    def after(self, core: Core, record: Record, batch: d.CycleBatch | None) -> None:
        """Take the orders of a cycle."""
        for decision in batch.decisions if batch is not None else ():
            if isinstance(decision, d.RunPlaced):
                self.live[f"{decision.workload}#{decision.run}"] = decision.pieces[0].node
            elif isinstance(decision, d.RunStop):
                self.stopping[f"{decision.workload}#{decision.run}"] = None
            elif isinstance(decision, d.RunClosed):
                name = f"{decision.workload}#{decision.run}"
                del self.live[name]
                self.stopping.pop(name, None)

    def answer(self) -> None:
        """Report what has become of the runs."""
        for name, node in list(self.live.items()):
            workload, _, number = name.partition("#")
            about = {"workload": workload, "run": int(number)}
            draw, stops = self.dice.random(), name in self.stopping
            row = self.story.core.state.run.row_of.get(name)
            if row is None:
                continue
            by = f"agent-{node}"
            if not self.story.core.state.run.started_ms[row] and not stops:
                self.story.tell(ev.RunStarted(**about, node=node), by)
            elif draw < (0.6 if stops else 0.04):
                outcome = "stopped" if stops and draw < 0.5 else "succeeded"
                self.story.tell(ev.RunFinished(**about, node=node, outcome=outcome), by)  # type: ignore[arg-type]  # one of two
            elif draw > 0.9:
                ran_ms = self.story.now_ms - int(self.story.core.state.run.started_ms[row])
                progress_ms = int(self.story.core.state.run.resume_ms[row]) + ran_ms
                self.story.tell(ev.RunCheckpointed(**about, progress_ms=progress_ms), by)


def play(seed: int, rule: str, cycles: int) -> tuple[Moved, Counter[str]]:
    """Play a story; returns what was moved, and how many of each decision there were."""
    dice, story = random.Random(seed), Story()
    agents, moved, conserving, told = Agents(story, dice), Moved(), Conserving(), Counter[str]()
    story.watchers = (agents, Books(), Timeline(), Inspector(), moved, conserving, Twin(), Forgetful(), FastTwin())
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.PolicyActivated(pool="p", quantum_ms=300_000, moves=rule))  # type: ignore[arg-type]  # a literal in disguise
    for budget, share_ppm in (("A", 500_000), ("B", 500_000)):
        story.tell(ev.BudgetSet(pool="p", budget=budget, share_ppm=share_ppm))
    for node in NODES:
        story.tell(ev.NodeJoined(node=node, pool="p", gpus=4, agent=f"agent-{node}"))
    made = 0
    with conserving.watching():
        for cycle in range(cycles):
            story.now_ms += 60_000
            for node in NODES:
                story.tell(ev.NodeHeartbeat(node=node, beat=cycle + 1), f"agent-{node}")
            for _ in range(dice.choice((0, 0, 0, 1, 1))):
                made += 1
                gang = dice.random() < 0.3
                story.tell(
                    ev.WorkloadSubmitted(
                        workload=f"w{made}", budget=dice.choice("AB"), pools=("p",), grace_ms=60_000,
                        gpus_milli=dice.choice((3_000, 4_000, 8_000)) if gang else dice.choice((500, 1_000, 1_000, 2_000)),
                        movable=dice.random() < (0.2 if gang else 0.8), min_runtime_ms=dice.choice((None, None, 60_000, 0)),
                    )
                )  # fmt: skip
            if dice.random() < 0.05:
                story.tell(ev.WorkloadCancelled(workload=f"w{dice.randint(1, made + 1)}"))
            if dice.random() < 0.02:
                node = dice.choice(NODES)
                story.tell(dice.choice((ev.NodeCordoned(node=node), ev.NodeUncordoned(node=node), ev.NodeUncordoned(node=node))))
            for decision in story.tick().decisions:
                told[type(decision).__name__] += 1
            agents.answer()
            if cycle % 40 == 39:
                story.restart()
    return moved, told


@pytest.mark.parametrize("seed", [3, 7])
def test_whoever_is_moved_goes_on_at_once_and_somebody_starts_by_it(seed: int) -> None:
    moved, told = play(seed, "carry_out", 150)

    assert moved.counts["went on"] == moved.counts["moved"] >= 2, f"seed {seed}: {moved.counts}"
    assert not told["MovesProposed"]


def test_proposals_are_said_once_each_and_move_nobody() -> None:
    moved, told = play(3, "propose", 150)

    assert moved.counts["proposed"] > 0
    assert moved.counts["withdrawn"] <= moved.counts["proposed"]
    assert not told["RunMoved"]


def test_nobody_is_moved_where_the_policy_does_not_say_so() -> None:
    _moved, told = play(3, "none", 60)

    assert not told["RunMoved"] + told["MovesProposed"]


@pytest.mark.slow
def test_moves_over_longer_stories() -> None:
    """Whoever stops to be moved goes on at once; some end by themselves in their grace. In a few stories nobody is ever moved."""
    moves = []
    for seed in range(100, 116):
        moved, _told = play(seed, "carry_out", 800)
        moves.append(moved.counts["moved and over"])
        assert moved.counts["went on"] == moves[-1], f"seed {seed}: {moved.counts}"

    assert sum(count > 0 for count in moves) > len(moves) // 2, moves
