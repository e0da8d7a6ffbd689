"""Shapes with wishes fit exactly where trying all sets of nodes finds that they fit, and get what they wished for."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from apportion.core.kernels import pack
from apportion.core.state.wishes import NO_ARRAY
from tests.core import oracles
from tests.core.oracles import Wants
from tests.strategies import I64, Cluster, clusters, column, domains, shapes

quick = settings(derandomize=True, max_examples=300, deadline=None)


def place(cluster: Cluster, nodes: int, per_node: int, mine: int, wants: Wants, rank: I64 = NO_ARRAY) -> list[int]:
    """Return the GPU rows that the kernel gives the shape."""
    chosen = np.full(max(1, nodes) * 72, -7, dtype=np.int64)
    count = pack.find_gpus(
        0, nodes, per_node, int(wants.loose), int(wants.block), 0, mine, cluster.nodes, cluster.node_pool, cluster.node_first,
        cluster.node_gpus, np.zeros_like(cluster.node_gpus), cluster.node_masked, cluster.used, np.zeros_like(cluster.used),
        cluster.out, cluster.held, NO_ARRAY if wants.room is None else column(list(wants.room)),
        NO_ARRAY if wants.within is None else column(list(wants.within)),
        NO_ARRAY if wants.near is None else column(list(wants.near)), column(list(wants.place)), rank, chosen,
    )  # fmt: skip
    return [int(gpu) for gpu in chosen[:count]]


def node_of(cluster: Cluster, gpu: int) -> int:
    """Return the node a GPU row belongs to."""
    return next(
        n for n in range(cluster.nodes) if cluster.node_first[n] <= gpu < cluster.node_first[n] + cluster.node_gpus[n]
    )


@st.composite
def wants(draw: st.DrawFn, cluster: Cluster) -> Wants:
    """Draw wishes: one domain of a level, few domains of a narrower one, loose GPUs."""
    narrow, wide = draw(domains(cluster.nodes))
    within = draw(st.sampled_from([None, narrow, wide, wide]))
    near = draw(st.sampled_from([None, list(range(cluster.nodes)), narrow if within is not narrow else None]))
    return Wants(draw(st.booleans()), within, near)


@quick
@given(clusters(max_nodes=6, max_gpus=5), st.data(), st.integers(1, 3))
def test_a_shape_is_in_one_domain_and_in_as_few_as_can_be(cluster: Cluster, data: st.DataObject, mine: int) -> None:
    wish = data.draw(wants(cluster))
    nodes, per_node = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    if wish.loose:
        nodes, per_node = nodes * per_node, 1

    gpus = place(cluster, nodes, per_node * 1_000, mine, wish)

    least = oracles.fewest_domains(cluster, 0, nodes, per_node * 1_000, mine, wish)
    assert bool(gpus) == (least is not None)
    if least is None:
        return
    on = Counter(node_of(cluster, gpu) for gpu in gpus)
    assert len(set(gpus)) == len(gpus) == nodes * per_node
    assert wish.loose or list(on.values()) == [per_node] * nodes, "each part on a node of its own"
    for gpu in gpus:
        assert gpu - cluster.node_first[node_of(cluster, gpu)] in oracles.free_positions(cluster, node_of(cluster, gpu), mine)
    for n in on:
        assert cluster.node_pool[n] == 0
        assert not cluster.node_masked[n]
    assert wish.within is None or len({wish.within[n] for n in on}) == 1
    assert wish.near is None or len({wish.near[n] for n in on}) == least


@quick
@given(clusters(max_nodes=6, max_gpus=5), st.data(), st.integers(1, 3))
def test_ranks_choose_and_never_decide_whether_a_shape_fits(cluster: Cluster, data: st.DataObject, mine: int) -> None:
    wish = data.draw(wants(cluster))
    nodes, per_node = data.draw(shapes())
    if per_node < 1_000:
        wish = Wants(False, None, None)
    elif wish.loose:
        nodes, per_node = nodes * per_node // 1_000, 1_000
    rank = column([data.draw(st.integers(-2, 2)) for _ in (cluster.used if per_node < 1_000 else cluster.node_gpus)])

    plain, ranked = place(cluster, nodes, per_node, mine, wish), place(cluster, nodes, per_node, mine, wish, rank)

    assert len(ranked) == len(plain)
    assert len(set(ranked)) == len(ranked)
    for gpu in ranked:
        node = node_of(cluster, gpu)
        assert cluster.node_pool[node] == 0
        assert not cluster.node_masked[node]
        assert cluster.used[gpu] + min(per_node, 1_000) <= 1_000
        assert not cluster.out[gpu]
        assert cluster.held[gpu] in (0, mine)
    on = [node_of(cluster, gpu) for gpu in ranked]
    assert wish.within is None or len({wish.within[node] for node in on}) <= 1
    assert wish.near is None or len({wish.near[node] for node in on}) == len({wish.near[node_of(cluster, gpu)] for gpu in plain})


@quick
@given(clusters(max_nodes=6), shapes(), st.data())
def test_the_highest_ranks_are_taken_and_ties_go_to_the_lower_row(
    cluster: Cluster, shape: tuple[int, int], data: st.DataObject
) -> None:
    nodes, per_node = shape
    rank = column([data.draw(st.integers(0, 2)) for _ in (cluster.used if per_node < 1_000 else cluster.node_gpus)])

    ranked = place(cluster, nodes, per_node, 1, Wants(False, None, None), rank)

    usable = [node for node in range(cluster.nodes) if cluster.node_pool[node] == 0 and not cluster.node_masked[node]]
    if per_node < 1_000:
        able = [
            gpu
            for node in usable
            for gpu in range(int(cluster.node_first[node]), int(cluster.node_first[node] + cluster.node_gpus[node]))
            if not cluster.out[gpu] and cluster.held[gpu] in (0, 1) and cluster.used[gpu] + per_node <= 1_000
        ]
        assert ranked == sorted(able, key=lambda gpu: (-rank[gpu], gpu))[:1]
    elif ranked:
        able = [node for node in usable if len(oracles.free_positions(cluster, node, 1)) >= per_node // 1_000]
        best = sorted(able, key=lambda node: (-rank[node], node))[:nodes]
        assert list(dict.fromkeys(node_of(cluster, gpu) for gpu in ranked)) == best


@quick
@given(clusters(max_nodes=6), shapes(), st.data())
def test_the_most_parts_of_a_domain_are_those_that_fit_when_it_is_empty(
    cluster: Cluster, shape: tuple[int, int], data: st.DataObject
) -> None:
    need = max(1, shape[1] // 1_000)
    narrow, _wide = data.draw(domains(cluster.nodes))
    loose = data.draw(st.booleans()) and need == 1
    empty = Cluster(
        cluster.node_pool, cluster.node_first, cluster.node_gpus, np.zeros_like(cluster.node_masked),
        np.zeros_like(cluster.used), cluster.out, np.zeros_like(cluster.held),
    )  # fmt: skip

    most = pack.most_parts(
        0, 1, need, int(loose), 0, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, cluster.out, NO_ARRAY,
        column(narrow), NO_ARRAY, 1,
    )  # fmt: skip

    wish = Wants(loose, narrow)
    assert most == 0 or oracles.fewest_domains(empty, 0, most, need * 1_000, 1, wish) is not None
    assert oracles.fewest_domains(empty, 0, most + 1, need * 1_000, 1, wish) is None


@st.composite
def block_wants(draw: st.DrawFn, cluster: Cluster, nodes: int, per_node: int) -> Wants:
    """Draw places with gaps for a block, a domain it may have to be in, and room."""
    room = [draw(st.sampled_from([1] * 9 + [0])) for _ in range(cluster.nodes)]
    if nodes == 1:
        return Wants(block=True, room=room)
    room = [free if cluster.node_gpus[n] == per_node else 0 for n, free in enumerate(room)]
    places = draw(st.permutations(range(cluster.nodes + draw(st.integers(0, 2)))))[: cluster.nodes]
    narrow, _wide = draw(domains(cluster.nodes))
    within = draw(st.sampled_from([None, None, [0] * cluster.nodes, narrow]))
    return Wants(block=True, room=room, within=within, place=[draw(st.sampled_from([spot] * 19 + [-1])) for spot in places])


@quick
@given(clusters(max_nodes=8, max_gpus=9, even=True), st.data(), st.integers(1, 3))
def test_a_block_is_aligned_and_found_if_there_is_one(cluster: Cluster, data: st.DataObject, mine: int) -> None:
    nodes = data.draw(st.sampled_from([1, 2, 2, 2, 4]))
    per_node = data.draw(st.sampled_from([1, 2, 4, 8] if nodes == 1 else [4]))
    wish = data.draw(block_wants(cluster, nodes, per_node))

    gpus = place(cluster, nodes, per_node * 1_000, mine, wish)

    free = oracles.blocks(cluster, 0, nodes, per_node * 1_000, mine, wish)
    event(f"{nodes} nodes: {'a block' if free else 'none'}")
    assert bool(gpus) == bool(free)
    assert not gpus or sorted(gpus) in [sorted(block) for block in free]
    assert len(gpus) == (nodes * per_node if free else 0)
    empty = Cluster(
        cluster.node_pool, cluster.node_first, cluster.node_gpus, np.zeros_like(cluster.node_masked),
        np.zeros_like(cluster.used), cluster.out, np.zeros_like(cluster.held),
    )  # fmt: skip
    most = pack.most_parts(
        0, nodes, per_node, 0, 1, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, cluster.out,
        column(list(wish.room or ())), NO_ARRAY if wish.within is None else column(list(wish.within)), column(list(wish.place)), 1,
    )  # fmt: skip
    assert (most >= nodes) == bool(oracles.blocks(empty, 0, nodes, per_node * 1_000, mine, wish))


def test_of_free_blocks_the_one_in_the_smallest_is_taken() -> None:
    # nodes of one GPU at places 0..7; 2 is taken, so 0-1 is a block by itself, and 4-7 one of four
    cluster = Cluster(
        column([0] * 8), column(list(range(8))), column([1] * 8), column([0] * 8), column([0, 0, 1000, 0, 0, 0, 0, 0]),
        column([0] * 8), column([0] * 8),
    )  # fmt: skip
    order = Wants(block=True, place=[4, 5, 2, 3, 0, 1, 6, 7])

    assert place(cluster, 2, 1_000, 1, order) == [4, 5], "places 0 and 1, since 2-3 is not free; 4-7 stays whole"
    assert place(cluster, 4, 1_000, 1, order) == [0, 1, 6, 7], "places 4 to 7"
    assert place(cluster, 8, 1_000, 1, order) == []


def test_oracle_by_hand() -> None:
    # three nodes of two; the first is half full; the last two are one rack
    cluster = Cluster(
        column([0, 0, 0]), column([0, 2, 4]), column([2, 2, 2]), column([0, 0, 0]), column([1000, 0, 0, 0, 0, 0]),
        column([0] * 6), column([0] * 6),
    )  # fmt: skip
    racks = [0, 1, 1]

    def fewest(nodes: int, gpus: int, **wish: object) -> int | None:
        return oracles.fewest_domains(cluster, 0, nodes, gpus * 1_000, 1, Wants(**wish))  # type: ignore[arg-type]  # as drawn

    assert fewest(3, 1, near=racks) == 2
    assert fewest(3, 1, within=racks) is None
    assert fewest(2, 2, within=racks) == 1
    assert fewest(5, 1, loose=True, near=racks) == 2
    assert fewest(4, 1, loose=True, near=racks) == 1
    assert fewest(4, 1, loose=True, near=[0, 1, 2]) == 2
    assert fewest(3, 1, loose=True, within=[0, 1, 2]) is None
    assert fewest(6, 1, loose=True) is None
