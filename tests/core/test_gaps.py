"""What is free of a pool and what it is good for, against plain Python over the same state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.seen import standing
from apportion.core import events as ev
from apportion.core.kernels import fragments
from apportion.core.policy.gaps import gaps_of
from apportion.core.state.mix import mix_of
from tests.core import test_fragments as plain
from tests.core.story import Story

quick = settings(derandomize=True, max_examples=40, deadline=None)
NODES = {"n1": ("p", 8, 16_000), "n2": ("p", 3, 64_000), "n3": ("q", 4, 0), "n4": ("p", 4, 0)}


def opened() -> Story:
    story = Story()
    story.open()
    for pool in ("p", "q"):
        story.tell(ev.PoolDefined(pool=pool))
        story.tell(ev.BudgetSet(pool=pool, budget="A", share_ppm=1_000_000))
    for node, (pool, gpus, cpu_milli) in NODES.items():
        story.tell(ev.NodeJoined(node=node, pool=pool, gpus=gpus, agent="a", cpu_milli=cpu_milli))
    return story


def free_of(story: Story, *, after_limits: bool) -> dict[str, list[int]]:
    """Return what is free of each GPU of each node, run by run."""
    state = story.core.state
    free = {node: [1_000] * gpus for node, (_, gpus, _) in NODES.items()}
    for row in range(state.node.used):
        for position in range(int(state.node.gpus[row])):
            if state.gpu.out[int(state.node.first_gpu[row]) + position]:
                free[state.node.keys[row]][position] = 0
    for run in state.run.live_rows():
        limit_ms = int(state.workload.expected_runtime_ms[int(state.run.workload[run])])
        piece = int(state.run.first_alloc[run])
        while piece >= 0:
            gpu = int(state.alloc.gpu[piece])
            if not (after_limits and limit_ms):
                free[state.node.keys[int(state.gpu.node[gpu])]][int(state.gpu.position[gpu])] -= int(state.alloc.milli[piece])
            piece = int(state.alloc.next[piece])
    return {node: [max(0, left) for left in lefts] for node, lefts in free.items()}


def blocks(free: list[list[int]]) -> dict[int, int]:
    """Return the aligned blocks that are wholly free, each size by itself."""
    found: dict[int, int] = {}
    for node in free:
        for size in (1, 2, 4, 8):
            for start in range(0, len(node) - size + 1, size):
                if node[start : start + size] == [1_000] * size:
                    found[size] = found.get(size, 0) + 1
    return found


@quick
@given(
    st.lists(
        st.tuples(st.sampled_from([100, 500, 1_000, 2_000, 4_000]), st.sampled_from([0, 4_000]), st.sampled_from([0, 60_000])),
        max_size=9,
    ),
    st.booleans(),
)
def test_gaps_are_what_counting_finds(jobs: list[tuple[int, int, int]], cordon: bool) -> None:
    story = opened()
    for number, (milli, cpu_milli, limit_ms) in enumerate(jobs):
        story.tell(
            ev.WorkloadSubmitted(
                workload=f"w{number}", budget="A", pools=("p",), gpus_milli=milli, cpu_milli=cpu_milli, expected_runtime_ms=limit_ms
            )
        )
    story.tick()
    if cordon:
        story.tell(ev.NodeCordoned(node="n1"))
    state = story.core.state
    mix = [
        plain.Asked(int(row[1]), int(row[2]), int(row[3]), int(row[4]), int(row[5]), int(row[0])) for row in mix_of(state, 0)
    ]

    gaps = gaps_of(state, 0)

    free, after = free_of(story, after_limits=False), free_of(story, after_limits=True)
    mine = [node for node, (pool, _, _) in NODES.items() if pool == "p"]
    cpu_left = {name: int(state.node.cpu_milli[row] - state.node.used_cpu_milli[row]) for name, row in state.node.row_of.items()}
    lost = sum(plain.fragment(plain.Node(tuple(free[node]), cpu_left[node], 0, -1), mix) for node in mine)
    assert gaps.free_milli == sum(sum(free[node]) for node in mine)
    assert gaps.fragment_milli == int(lost)
    assert gaps.blocks == blocks([free[node] for node in mine])
    assert gaps.blocks_after_limits == blocks([after[node] for node in mine])


def test_people_are_told_by_name_of_the_pool() -> None:
    story = opened()
    story.tell(ev.PolicyActivated(pool="q", packing="balanced"))

    told = standing.gaps(story.core)

    assert list(told) == ["p", "q"]
    assert told["q"] == {
        "packing": "balanced", "free_milli": 4_000, "fragment_milli": 0, "fragment_ppm": 0,
        "free_blocks_after_limits": {"1": 4, "2": 2, "4": 1},
    }  # fmt: skip
    assert told["p"]["packing"] == "best_fit"
    assert fragments.WHOLE == 1_000
