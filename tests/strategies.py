"""Hypothesis strategies shared by all tests: budget trees, clusters of GPUs, queues, and bodies that nobody can read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.core.state.state import State
from apportion.core.units import MAX_NODE_GPUS, MAX_POOL_MILLI, MILLI, PPM

I64 = NDArray[np.int64]


def column(values: list[int]) -> I64:
    """Return a column as the core has it."""
    return np.array(values, dtype=np.int64)


@dataclass
class Trees:
    """Budget trees of one or two pools, mixed in one table; a parent's row is below its children's."""

    pool: list[int]
    parent: list[int]
    weight: list[int]
    root: list[int]

    @property
    def rows(self) -> int:
        """Return the number of budget lines."""
        return len(self.pool)

    def children_of(self, row: int) -> list[int]:
        """Return the rows right below a line, ascending."""
        return [other for other in range(self.rows) if self.parent[other] == row]

    def leaves(self, pool: int) -> list[int]:
        """Return the leaves of a pool, ascending."""
        return [row for row in range(self.rows) if self.pool[row] == pool and not self.children_of(row)]

    def child_counts(self) -> list[int]:
        """Return how many children each line has."""
        return [len(self.children_of(row)) for row in range(self.rows)]


@st.composite
def trees(draw: st.DrawFn, max_rows: int = 9) -> Trees:
    """Draw one or two trees; some weights are zero, many are equal."""
    pools = draw(st.integers(1, 2))
    pool, parent, root = list(range(pools)), [-1] * pools, list(range(pools))
    for row in range(pools, pools + draw(st.integers(0, max_rows))):
        above = draw(st.integers(0, row - 1))
        pool.append(pool[above])
        parent.append(above)
    share = st.one_of(st.sampled_from([0, 1, 250_000, 500_000, PPM]), st.integers(0, PPM))
    return Trees(pool, parent, [draw(share) for _ in pool], root)


def milli(most: int = MAX_POOL_MILLI) -> st.SearchStrategy[int]:
    """Draw an amount of GPUs: none, whole GPUs, odd fractions, and the largest amount allowed."""
    return st.one_of(
        st.sampled_from([0, MILLI, 4 * MILLI, most]),
        st.integers(0, min(16, most // MILLI)).map(lambda gpus: gpus * MILLI),
        st.integers(0, most),
    )


@dataclass
class Cluster:
    """Nodes and GPUs as columns. GPUs of a node are contiguous; a node may have rows it does not offer now."""

    node_pool: I64
    node_first: I64
    node_gpus: I64
    node_masked: I64
    used: I64
    out: I64
    held: I64

    @property
    def nodes(self) -> int:
        """Return the number of node rows."""
        return len(self.node_pool)


@st.composite
def clusters(draw: st.DrawFn, max_nodes: int = 5, max_gpus: int = 9, *, even: bool = False) -> Cluster:
    """Draw a cluster: busy, shared, broken and held GPUs, masked nodes, a second pool, nodes that left.

    ``even``: mostly nodes of four, mostly free.
    """
    count = draw(st.integers(max_nodes // 2 if even else 0, max_nodes))
    size = st.one_of(st.just(4), st.just(8), st.integers(0, max_gpus))
    sizes = [draw(st.sampled_from([4] * 9 + [8]) if even else size) for _ in range(count)]
    slots = [size + draw(st.integers(0, 1)) for size in sizes]
    gpus = sum(slots)
    busy = st.sampled_from([0] * 39 + [1000] if even else [0, 0, 0, 0, 1000, 1000, 250, 500, 501, 999])
    few = st.sampled_from([0] * (59 if even else 5) + [1])
    return Cluster(
        node_pool=column([draw(few) for _ in sizes]),
        node_first=column([sum(slots[:node]) for node in range(count)]),
        node_gpus=column(sizes),
        node_masked=column([draw(few) for _ in sizes]),
        used=column([draw(busy) for _ in range(gpus)]),
        out=column([draw(few) for _ in range(gpus)]),
        held=column([draw(st.sampled_from([0] * (60 if even else 4) + [1, 2])) for _ in range(gpus)]),
    )


@st.composite
def domains(draw: st.DrawFn, nodes: int) -> tuple[list[int], list[int]]:
    """Draw a number per node for a narrow and for a wide level: each narrow domain lies in one wide one; some nodes are alone."""
    narrow = [draw(st.sampled_from([0, 1, 2, 3, 4, 10 + node])) for node in range(nodes)]
    return narrow, [label if label >= 10 else label // 2 for label in narrow]


def shapes() -> st.SearchStrategy[tuple[int, int]]:
    """Draw (nodes, milli per node): fractions on one node, whole GPUs on one or several."""
    fraction = st.tuples(st.just(1), st.integers(1, MILLI - 1) | st.sampled_from([250, 500]))
    whole = st.tuples(st.integers(1, 4), st.integers(1, 9).map(lambda gpus: gpus * MILLI))
    return st.one_of(fraction, whole, st.tuples(st.just(1), st.just(MAX_NODE_GPUS * MILLI)))


POISON_NUMBERS = (-1, -(2**63), 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30)


def poison_bodies() -> st.SearchStrategy[bytes]:
    """Draw bodies that are no event: not UTF-8, not JSON, JSON of another shape, JSON without an end, too deep, too large."""
    deep = st.integers(1, 40).map(lambda scale: b"[" * (scale * 3_000))
    nested = st.integers(1, 40).map(
        lambda scale: b'{"id":"x","type":"node.heartbeat","data":{"node":"n1","beat":1,"zz":'
        + b"[" * (scale * 3_000)
        + b"]" * (scale * 3_000)
        + b"}}"
    )
    odd = st.sampled_from(
        [
            b"", b"{", b"null", b"[]", b"0", b'"text"', b"\xff\xfe{}", b"{}", b'{"id":1}', b'{"id":"x","type":"nope"}',
            b'{"id":"x","type":"clock.tick","v":2}', b'{"id":"x","type":"clock.tick","v":1e9}',
            b'{"id":"x","type":"pool.defined","data":7}', b'{"id":"x","type":"pool.defined","data":{"pool":"\xff"}}',
            b'{"id":"x","type":"pool.defined","data":{"pool":"p\\u0000"}}', b"x" * (256 * 1024 + 1),
        ]
    )  # fmt: skip
    return st.one_of(odd, st.binary(max_size=40), deep, nested)


def add_nodes(state: State, sizes: Iterable[int]) -> None:
    """Lay out nodes ``n0``... of so many GPUs each, as the core has them, one behind the other."""
    for number, size in enumerate(sizes):
        node = state.node.add(f"n{number}")
        state.node.first_gpu[node], state.node.gpus[node] = state.gpu.used, size
        for position in range(size):
            gpu = state.gpu.add()
            state.gpu.node[gpu], state.gpu.position[gpu] = node, position
