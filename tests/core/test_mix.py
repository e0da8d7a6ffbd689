"""The mix of a pool is its live work by class, counted in parts; within a cycle it stands."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core import events as ev
from apportion.core.kernels import fragments
from apportion.core.state.mix import CLASSES_MAX, mix_of
from tests.core.story import Story

quick = settings(derandomize=True, max_examples=40, deadline=None)


def opened(*pools: str) -> Story:
    story = Story()
    story.open()
    for pool in pools:
        story.tell(ev.PoolDefined(pool=pool))
        story.tell(ev.BudgetSet(pool=pool, budget="A", share_ppm=1_000_000))
        story.tell(ev.NodeJoined(node=f"n-{pool}", pool=pool, gpus=8, agent="a", cpu_milli=64_000, memory_mib=64_000))
        story.tell(ev.PolicyActivated(pool=pool, packing="fgd"))
    return story


def submit(story: Story, name: str, pool: str, milli: int, nodes: int = 1, cpu_milli: int = 0, memory_mib: int = 0) -> None:
    story.tell(
        ev.WorkloadSubmitted(
            workload=name, budget="A", pools=(pool,), gpus_milli=milli * nodes, nodes=nodes, cpu_milli=cpu_milli,
            memory_mib=memory_mib,
        )
    )  # fmt: skip


def told(story: Story, pool: str) -> list[tuple[int, ...]]:
    """Return (weight, GPUs, milli, CPU, memory) of the classes."""
    mix = mix_of(story.core.state, story.core.state.pool.row_of[pool])
    assert all(int(row[fragments.MODELS]) == -1 for row in mix)
    return [tuple(int(value) for value in row[: fragments.MODELS]) for row in mix]


@quick
@given(
    st.lists(
        st.tuples(st.sampled_from(["p", "q"]), st.sampled_from([100, 500, 1_000, 2_000, 8_000]), st.sampled_from([0, 4_000]),
                  st.sampled_from([0, 512]), st.booleans()),
        max_size=12,
    )
)  # fmt: skip
def test_the_mix_counts_live_work_of_the_pool(jobs: list[tuple[str, int, int, int, bool]]) -> None:
    story = opened("p", "q")
    for number, (pool, milli, cpu_milli, memory_mib, _) in enumerate(jobs):
        submit(story, f"w{number}", pool, milli, 1, cpu_milli, memory_mib)
    before = {pool: told(story, pool) for pool in ("p", "q")}
    story.tick()
    for pool in ("p", "q"):
        assert told(story, pool) == before[pool], "who starts goes on counting"
    for number, job in enumerate(jobs):
        if job[-1]:
            story.tell(ev.WorkloadCancelled(workload=f"w{number}"))
    story.tick()
    for pool in ("p", "q"):
        live = story.core.state.workload.row_of
        expected = Counter(
            (max(1, milli // 1_000), min(1_000, milli), cpu_milli, memory_mib)
            for number, (where, milli, cpu_milli, memory_mib, _) in enumerate(jobs)
            if where == pool and f"w{number}" in live
        )
        assert {tuple(shape): weight for weight, *shape in told(story, pool)} == expected


def test_the_heaviest_classes_count_and_a_gang_counts_each_of_its_parts() -> None:
    story = opened("p")
    story.tell(ev.NodeJoined(node="m", pool="p", gpus=8, agent="a"))
    submit(story, "gang", "p", 8_000, nodes=2)
    for number in range(CLASSES_MAX + 3):
        submit(story, f"w{number}", "p", 10 + number)
    submit(story, "again", "p", 28)

    assert told(story, "p")[:2] == [(2, 1, 28, 0, 0), (2, 8, 1_000, 0, 0)], "ties by the smaller class"
    assert len(told(story, "p")) == CLASSES_MAX
    assert [row[2] for row in told(story, "p")[2:]] == list(range(10, 10 + CLASSES_MAX - 2))


def test_a_mix_is_kept_until_the_next_record() -> None:
    story = opened("p")
    submit(story, "w1", "p", 1_000)
    state = story.core.state

    first = mix_of(state, 0)

    assert mix_of(state, 0) is first
    submit(story, "w2", "p", 1_000)
    assert [int(row[fragments.WEIGHT]) for row in mix_of(state, 0)] == [2]


def test_no_amount_that_may_be_asked_for_leaves_the_bounds_of_the_kernels() -> None:
    story = opened("p")
    story.tell(ev.NodeJoined(node="m", pool="p", gpus=8, agent="a", cpu_milli=2**53, memory_mib=2**53))
    submit(story, "w1", "p", 1_000, cpu_milli=2**53, memory_mib=2**53)

    story.tick()

    assert told(story, "p") == [(1, 1, 1_000, fragments.CPU_MILLI_MAX, 2**53)]
    assert fragments.CPU_MILLI_MAX * fragments.WEIGHT_MAX * 1_000 < 2**63
    assert story.core.state.run.used == 1
