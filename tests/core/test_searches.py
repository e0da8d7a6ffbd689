"""A cycle searches for victims so many times at most; whoever is left takes his turn in the next one."""

from __future__ import annotations

import pytest

from apportion.core import events as ev
from apportion.core.decisions import CycleBatch, RunPreempted
from apportion.core.policy import placing
from apportion.core.units import MS_PER_HOUR
from tests.core.books import Books
from tests.core.invariants import Inspector
from tests.core.story import Story

NODES = 6


def takers(batch: CycleBatch) -> list[str]:
    """Return for whom runs are asked to go."""
    return sorted(one.certificate.beneficiary for one in batch.decisions if isinstance(one, RunPreempted))


def full() -> Story:
    """Return a pool that one of three budgets fills, whose runs may be asked to go, and for whose GPUs the others wait."""
    story = Story(Books(), Inspector())
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    for number in range(NODES):
        story.tell(ev.NodeJoined(node=f"n{number}", pool="p", gpus=8, agent="agent"))
    for path in ("A", "B", "C"):
        story.tell(ev.BudgetSet(pool="p", budget=path, share_ppm=333_333))
    for number in range(NODES):
        story.tell(ev.WorkloadSubmitted(workload=f"c{number}", budget="C", pools=("p",), gpus_milli=8_000))
    story.tick()
    for number in range(NODES):
        story.tell(ev.RunStarted(workload=f"c{number}", run=1, node=f"n{number}"), "agent")
    story.now_ms += 2 * MS_PER_HOUR
    for number in range(NODES):
        story.tell(ev.NodeHeartbeat(node=f"n{number}", beat=1), "agent")
    for name, path in (("a", "A"), ("b", "B")):
        story.tell(ev.WorkloadSubmitted(workload=name, budget=path, pools=("p",), gpus_milli=8_000))
    return story


def test_without_need_nobody_is_left_for_the_next_cycle() -> None:
    assert takers(full().tick()) == ["a", "b"]


def test_who_is_left_comes_in_the_next_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "SEARCHES_MAX", 1)
    story = full()

    first = takers(story.tick())
    story.now_ms += 1_000
    second = takers(story.tick())

    assert (len(first), len(second)) == (1, 1)
    assert sorted(first + second) == ["a", "b"]
