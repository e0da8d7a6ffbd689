"""The fragment of a node and the node a task gets are what plain Python with fractions and a real sigmoid finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from apportion.core.kernels import fragments
from apportion.core.state import schema
from tests.strategies import I64, column

quick = settings(derandomize=True, max_examples=300, deadline=None)
PACKINGS = st.sampled_from([fragments.BEST_FIT, fragments.FGD, fragments.BALANCED])


@dataclass(frozen=True)
class Asked:
    """What one task takes of a node."""

    gpus: int
    milli: int
    cpu_milli: int
    memory_mib: int = 0
    models: int = -1
    weight: int = 0

    @property
    def row(self) -> list[int]:
        """Return it as the kernels take it."""
        return [self.weight, self.gpus, self.milli, self.cpu_milli, self.memory_mib, self.models]


@dataclass(frozen=True)
class Node:
    """What is left of a node."""

    free: tuple[int, ...]
    cpu_milli: int
    memory_mib: int
    models: int

    def less(self, asked: Asked, taken: dict[int, int]) -> Node:
        """Return what a task leaves that takes so much of the GPUs at these positions."""
        free = tuple(left - taken.get(position, 0) for position, left in enumerate(self.free))
        return Node(free, self.cpu_milli - asked.cpu_milli, self.memory_mib - asked.memory_mib, self.models)


def fits(asked: Asked, node: Node) -> bool:
    """Tell whether a node has place for a task."""
    room = node.cpu_milli >= asked.cpu_milli and node.memory_mib >= asked.memory_mib
    able = sum(left >= asked.milli for left in node.free) >= asked.gpus and bool(asked.models & node.models)
    return room and (able or not asked.gpus)


def fragment(node: Node, mix: list[Asked]) -> Fraction:
    """Return what a task drawn from the mix could not use, on average, in milli-GPU."""
    lost = 0
    for asked in mix:
        useless = not asked.gpus or not fits(asked, node)
        lost += asked.weight * sum(left for left in node.free if useless or left < asked.milli)
    return Fraction(lost, max(1, sum(asked.weight for asked in mix)))


def stranded(node: Node, mix: list[Asked]) -> int:
    """Return the free GPU for which no CPU is left, if all that comes takes what the mix takes per GPU."""
    gpu_milli = sum(one.weight * one.gpus * one.milli for one in mix if one.gpus)
    per_gpu = sum(one.weight * one.cpu_milli for one in mix if one.gpus) * 1_000 // gpu_milli if gpu_milli else 0
    return max(0, sum(node.free) - node.cpu_milli * 1_000 // per_gpu) if per_gpu else 0


def ways(asked: Asked, node: Node) -> list[tuple[int, Node]]:
    """Return the GPUs that a fraction could have, or -1 and the first whole ones, with what would be left."""
    if asked.gpus == 1 and asked.milli < 1_000:
        able = [position for position, left in enumerate(node.free) if left >= asked.milli]
        return [(position, node.less(asked, {position: asked.milli})) for position in able]
    first = [position for position, left in enumerate(node.free) if left == asked.milli][: asked.gpus]
    return [(-1, node.less(asked, dict.fromkeys(first, asked.milli)))]


def score(packing: int, node: Node, after: Node, mix: list[Asked]) -> Fraction:
    """Return how good it is that this becomes of a node."""
    if packing == fragments.BEST_FIT:
        return Fraction(math.floor(100 - Fraction(after.cpu_milli, 2_560) - Fraction(sum(after.free), 160)))
    decrease = fragment(node, mix) - fragment(after, mix)
    if packing == fragments.FGD:
        exact = 100 / (1 + math.exp(-float(decrease) / 1_000))
        assume(decrease == 0 or abs(exact - round(exact)) > 1e-9)
        return Fraction(math.floor(exact))
    more = stranded(after, mix) - stranded(node, mix)
    return Fraction(math.floor(decrease * fragments.FINE) - more * fragments.STRANDED)


def best(packing: int, asked: Asked, nodes: list[Node], order: list[int], mix: list[Asked]) -> tuple[int, int]:
    """Return node and position of the GPU, (-1, -1) = nowhere: the highest score, then the order, then the position."""
    found = []
    for rank, number in enumerate(order):
        node = nodes[number]
        for position, after in ways(asked, node) if fits(asked, node) else ():
            tight = node.free[position] if packing == fragments.BEST_FIT and position >= 0 else 0
            found.append((-score(packing, node, after, mix), rank, tight, position, number))
    if not found:
        return -1, -1
    _, _, _, position, number = min(found)
    return number, position


def tasks(weight: st.SearchStrategy[int]) -> st.SearchStrategy[Asked]:
    """Draw what a task takes: a fraction, whole GPUs, or none."""
    shape = st.one_of(
        st.tuples(st.just(1), st.sampled_from([100, 250, 500, 810])),
        st.tuples(st.integers(1, 4), st.just(1_000)),
        st.just((0, 0)),
    )
    cpu_milli, memory_mib = st.sampled_from([0, 4_000, 8_000, 20_000]), st.sampled_from([0, 0, 64])
    rest = st.tuples(cpu_milli, memory_mib, st.sampled_from([-1, -1, 1, 2]), weight)
    return st.tuples(shape, rest).map(lambda drawn: Asked(*drawn[0], *drawn[1]))


def nodes_of_one_to_four() -> st.SearchStrategy[list[Node]]:
    """Draw what is left of some nodes."""
    left = st.sampled_from([0, 100, 190, 500, 750, 1_000, 1_000, 1_000])
    node = st.builds(
        Node, st.lists(left, min_size=1, max_size=4).map(tuple), st.sampled_from([0, 3_000, 8_000, 31_000, 96_000]),
        st.sampled_from([64, 128]), st.sampled_from([1, 2]),
    )  # fmt: skip
    return st.lists(node, min_size=1, max_size=5)


def mixes() -> st.SearchStrategy[list[Asked]]:
    """Draw what comes."""
    return st.lists(tasks(st.integers(1, 900)), min_size=1, max_size=6)


def table(mix: list[Asked]) -> I64:
    """Return a mix as the kernels take it."""
    return np.array([asked.row for asked in mix], dtype=np.int64)


@quick
@given(nodes_of_one_to_four(), mixes())
def test_the_fragment_is_what_tasks_of_the_mix_could_not_use(nodes: list[Node], mix: list[Asked]) -> None:
    weight = sum(asked.weight for asked in mix)
    for node in nodes:
        free = column(list(node.free))
        found = fragments.fragment(0, len(free), free, node.cpu_milli, node.memory_mib, node.models, table(mix))

        assert Fraction(int(found), weight) == fragment(node, mix)
        assert 0 <= found <= weight * sum(node.free)


@quick
@given(PACKINGS, tasks(st.just(0)), nodes_of_one_to_four(), mixes(), st.randoms(use_true_random=False))
def test_a_task_gets_the_best_node_and_ties_go_by_the_order(
    packing: int, asked: Asked, nodes: list[Node], mix: list[Asked], shuffled: st.random.Random
) -> None:
    order = list(range(len(nodes)))
    shuffled.shuffle(order)

    assert chosen(packing, asked, nodes, order, mix) == best(packing, asked, nodes, order, mix)


@quick
@given(PACKINGS, tasks(st.just(0)), nodes_of_one_to_four(), mixes())
def test_whether_a_task_has_place_is_the_same_under_every_packing(
    packing: int, asked: Asked, nodes: list[Node], mix: list[Asked]
) -> None:
    node, _ = chosen(packing, asked, nodes, list(range(len(nodes))), mix)

    event("nowhere" if node < 0 else "somewhere")
    assert (node >= 0) == any(fits(asked, one) for one in nodes)


@quick
@given(PACKINGS, tasks(st.just(0)), st.lists(st.integers(0, 3), min_size=1, max_size=6), mixes())
def test_what_is_remembered_of_a_node_is_what_looking_again_would_find(
    packing: int, asked: Asked, changes: list[int], mix: list[Asked]
) -> None:
    nodes = [Node((1_000, 1_000, 500), 31_000, 128, 1), Node((1_000, 250), 96_000, 128, 1)]
    memory = Memory(len(nodes))
    for change in changes:
        assert chosen(packing, asked, nodes, [1, 0], mix, memory) == chosen(packing, asked, nodes, [1, 0], mix)
        which = change % len(nodes)
        nodes[which] = nodes[which].less(Asked(0, 0, 500), {change % 2: min(100, nodes[which].free[change % 2])})
        memory.version[which] += 1


class Memory:
    """What the caller keeps for a kind of task."""

    def __init__(self, nodes: int) -> None:
        self.version, self.known = np.zeros(nodes, dtype=np.int64), np.full(nodes, -1, dtype=np.int64)
        self.score, self.position = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)


def chosen(
    packing: int, asked: Asked, nodes: list[Node], order: list[int], mix: list[Asked], memory: Memory | None = None
) -> tuple[int, int]:
    """Return what the kernel chooses."""
    memory = memory or Memory(len(nodes))
    sizes = [len(node.free) for node in nodes]
    node = fragments.best_node(
        packing, column(asked.row), table(mix), column(order), memory.version, memory.known, memory.score, memory.position,
        column([sum(sizes[:number]) for number in range(len(sizes))]), column(sizes),
        column([left for one in nodes for left in one.free]), column([one.cpu_milli for one in nodes]),
        column([one.memory_mib for one in nodes]), column([one.models for one in nodes]),
    )  # fmt: skip
    return int(node), int(memory.position[node]) if node >= 0 else -1


@quick
@given(st.sampled_from([fragments.FGD, fragments.BALANCED]), tasks(st.just(0)), nodes_of_one_to_four(), mixes())
def test_ranks_are_the_scores_of_nodes_or_of_gpus_for_a_fraction(
    packing: int, asked: Asked, nodes: list[Node], mix: list[Asked]
) -> None:
    asked, mix = replace(asked, models=-1), [replace(one, models=-1) for one in mix]
    sizes, of_gpus = [len(node.free) for node in nodes], asked.gpus == 1 and asked.milli < 1_000
    first = [sum(sizes[:number]) for number in range(len(sizes))]
    pools = [number % 2 for number in range(len(nodes))]
    rank = np.zeros(sum(sizes) if of_gpus else len(nodes), dtype=np.int64)

    fragments.fill_ranks(
        packing, column(asked.row), table(mix), 0, len(nodes), column(pools), column(first), column(sizes),
        column([left for one in nodes for left in one.free]), column([one.cpu_milli for one in nodes]),
        column([one.memory_mib for one in nodes]), rank,
    )  # fmt: skip

    expected = [fragments.NOWHERE] * len(rank)
    for number, node in enumerate(nodes):
        for position, after in ways(asked, node) if pools[number] == 0 and fits(asked, node) else ():
            expected[first[number] + position if of_gpus else number] = int(score(packing, node, after, mix))
    assert list(rank) == expected


def test_the_state_and_the_kernels_call_the_packings_by_the_same_numbers() -> None:
    assert (schema.BEST_FIT, schema.FGD, schema.BALANCED) == (fragments.BEST_FIT, fragments.FGD, fragments.BALANCED)


@quick
@given(st.integers(-72_000, 72_000), st.integers(1, 1_000))
@example(0, 1)
@example(-72_000, 1)
@example(72_000, 1)
def test_the_rounded_score_is_the_sigmoid_in_per_cent(decrease: int, weight: int) -> None:
    exact = 100 / (1 + math.exp(-decrease / weight / 1_000))

    assert fragments._rounded(decrease, weight) == min(99, math.floor(exact))


def test_each_step_of_the_rounded_score_is_where_the_sigmoid_passes_a_whole_number() -> None:
    assert [int(step) for step in fragments._STEPS] == [math.ceil(1e9 * math.log(k / (100 - k))) for k in range(51, 100)]


@pytest.mark.parametrize("packing", [fragments.FGD, fragments.BALANCED])
def test_the_largest_weights_leave_no_product_outside_int64(packing: int) -> None:
    """A node of 72 GPUs that one task ruins, seen by a mix as heavy as is allowed."""
    mix = [Asked(72, 1_000, 1, weight=fragments.WEIGHT_MAX)]
    whole, spare = Node((1_000,) * 72, 1, 0, 1), Node((1_000,) * 71, 1, 0, 1)

    assert chosen(packing, Asked(1, 1_000, 0), [whole, spare], [0, 1], mix) == (1, -1)
    assert 72_000 * fragments.WEIGHT_MAX * 1_000_000 < 2**63
    assert 72_000 * fragments.WEIGHT_MAX * fragments.FINE < 2**63
