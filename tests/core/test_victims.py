"""The search for victims finds what trying all subsets of the runs finds: the least cost, or that there is no plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.core.kernels import targets, victims
from apportion.core.policy import choosing, preempting
from apportion.core.policy.choosing import Field
from apportion.core.state.state import State
from apportion.core.state.wishes import COLUMNS, Wish, wish_of
from tests.core import oracles
from tests.core.oracles import NO_WISH, Wants
from tests.strategies import Cluster, add_nodes, column

quick = settings(derandomize=True, max_examples=300, deadline=None)


@dataclass
class Crowd:
    """Nodes full of runs, and a workload (row 0) that wants ``nodes`` x ``per_node`` of them."""

    state: State
    field: Field
    pieces: list[list[tuple[int, int]]]  # per run: (GPU row, milli)
    masked: NDArray[np.int64]  # nodes kept for somebody else
    wants: Wants = NO_WISH


def crowd_of(
    sizes: list[int],
    runs: list[tuple[int, bool, list[tuple[int, int]]]],
    costs: list[list[int]],
    room: list[int],
    shape: tuple[int, int],
    out: list[int],
) -> Crowd:
    """Lay out nodes of ``sizes`` GPUs and ``runs`` (leaf, eligible, pieces) as the core has them; leaf -1 is idle cycles."""
    state = State()
    add_nodes(state, sizes)
    state.gpu.column("out")[:] = out
    workload = state.workload.add("a1")
    state.workload.nodes[workload], state.workload.milli_per_node[workload] = shape
    state.workload.gpus_milli[workload] = shape[0] * shape[1]
    milli = []
    for number, (_leaf, _eligible, pieces) in enumerate(runs):
        run, last = state.run.add(f"b{number}#1"), -1
        state.run.workload[run] = state.workload.add(f"b{number}")
        state.run.first_alloc[run] = -1
        milli.append(sum(amount for _gpu, amount in pieces))
        for gpu, amount in pieces:
            alloc = state.alloc.add()
            state.alloc.run[alloc], state.alloc.gpu[alloc], state.alloc.milli[alloc] = run, gpu, amount
            state.alloc.next[alloc] = -1
            state.gpu.used_milli[gpu] += amount
            if last < 0:
                state.run.first_alloc[run] = alloc
            else:
                state.alloc.next[last] = alloc
            last = alloc
    field = Field(
        eligible=column([int(eligible) for _leaf, eligible, _pieces in runs]),
        cost=np.array(costs, dtype=np.int64).reshape(len(runs), targets.COSTS),
        leaf=column([leaf for leaf, _eligible, _pieces in runs]),
        milli=column(milli),
        room=column(room),
        rank=column([0 for _ in room]),
    )
    nobody = np.zeros(len(sizes), dtype=np.int64)
    return Crowd(state, field, [pieces for _leaf, _eligible, pieces in runs], nobody)


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Draw up to four nodes, runs on one GPU, several, parts of one, and on several nodes; three budgets that may give a little."""
    sizes = draw(st.lists(st.sampled_from([2, 2, 3, 4]), min_size=1, max_size=4))
    first = [sum(sizes[:node]) for node in range(len(sizes))]
    free = [list(range(first[node], first[node] + size)) for node, size in enumerate(sizes)]
    runs: list[tuple[int, bool, list[tuple[int, int]]]] = []
    used = [0] * sum(sizes)
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["whole", "whole", "gang", "part", "part"]))
        pieces: list[tuple[int, int]] = []
        if kind == "part":
            amount = draw(st.sampled_from([250, 500, 600]))
            able = [gpu for gpu in range(sum(sizes)) if used[gpu] != 1000 and used[gpu] + amount <= 1000]
            pieces = [(draw(st.sampled_from(able)), amount)] if able else []
        else:
            each = draw(st.integers(1, 3))
            able = [node for node in range(len(sizes)) if len([g for g in free[node] if not used[g]]) >= each]
            if kind == "gang" and len(able) > 1:
                able = draw(st.permutations(able))[: draw(st.integers(2, len(able)))]
            else:
                able = able[draw(st.integers(0, len(able) - 1)) :][:1] if able else []
            pieces = [(gpu, 1000) for node in able for gpu in [g for g in free[node] if not used[g]][:each]]
        if pieces:
            for gpu, amount in pieces:
                used[gpu] += amount
            runs.append((draw(st.integers(-1, 2)), draw(st.sampled_from([True, True, True, True, False])), pieces))
    for node in free:  # most of what is left is taken too
        rest = [gpu for gpu in node if not used[gpu]]
        if rest and draw(st.integers(0, 4)):
            runs.append((draw(st.integers(-1, 2)), True, [(gpu, 1000) for gpu in rest]))
    costs = [
        [draw(st.integers(0, 3)), draw(st.integers(0, 3)), 0, sum(m for _gpu, m in pieces), 0, draw(st.integers(0, 2)), 0]
        for _leaf, _eligible, pieces in runs
    ]
    room = [draw(st.sampled_from([0, 2_500, 7_000, 10_500, 100_000])) for _ in range(3)]
    fraction = st.tuples(st.just(1), st.sampled_from([250, 500, 900]))
    whole = st.tuples(st.integers(1, 3), st.integers(1, 4).map(lambda gpus: gpus * 1000))
    out = [draw(st.sampled_from([0] * 9 + [1])) for _ in range(sum(sizes))]
    crowd = crowd_of(sizes, runs, costs, room, draw(st.one_of(whole, whole, fraction)), out)
    crowd.masked[:] = [draw(st.sampled_from([0] * 9 + [1])) for _ in sizes]
    return crowd


@st.composite
def wishful_crowds(draw: st.DrawFn) -> Crowd:
    """Draw such a crowd with racks and labels, and a workload that wishes for them, for GPUs wherever they are, or for a block."""
    crowd = draw(crowds())
    state = crowd.state
    racks = [draw(st.sampled_from([0, 1, 1, 2])) for _ in range(state.node.used)]  # 0 = in none
    for rack in ("r1", "r2"):
        state.domain.add(rack)
    state.node.column("domain_1")[:] = racks
    kind = draw(st.sampled_from(["even", "loose", "block", "block"])) if state.workload.milli_per_node[0] >= 1_000 else "even"
    loose = kind == "loose"
    wish = Wish(within=draw(st.sampled_from([0, 2])), near=draw(st.sampled_from([0, 2])), loose=int(loose))
    wish = wish._replace(labels=draw(st.sampled_from([(), ("gen=a",)])))
    nodes, each = int(state.workload.nodes[0]), int(state.workload.milli_per_node[0]) // 1_000
    block = kind == "block"
    if block and (each if nodes == 1 else nodes) not in (1, 2, 4):
        nodes, each = draw(st.sampled_from([(1, 2), (2, 2), (2, 4)]))
        state.workload.put(0, {"nodes": nodes, "milli_per_node": each * 1_000, "gpus_milli": nodes * each * 1_000})
    if block:
        wish = wish._replace(aligned=1, near=0, exclusive=each if nodes > 1 else 0)
    places = draw(st.permutations(range(len(racks))))
    state.node.column("place")[:] = [place + 1 for place in places]
    give_wish(state, [0], wish)
    if loose:
        state.workload.nodes[0] = int(state.workload.gpus_milli[0]) // 1_000
        state.workload.milli_per_node[0] = 1_000
    labels = [rack or 10 + node for node, rack in enumerate(racks)]
    bears = [draw(st.sampled_from([1, 1, 0])) for _ in racks]
    state.label.add("gen=a")
    for node in np.flatnonzero(bears):
        tag = state.tag.add()
        state.tag.node[tag], state.tag.label[tag] = node, 1
    room = [99 * bear for bear in bears] if wish.labels else None
    if wish.exclusive:
        room = [free if state.node.gpus[node] == each else 0 for node, free in enumerate(room or [99] * len(racks))]
    crowd.wants = Wants(loose, labels if wish.within else None, room=room, block=block, place=places)
    return crowd


@dataclass
class Contest:
    """What runs take from each other beside GPUs in a crowd: CPU, and places apart from a group."""

    crowd: Crowd
    offered: list[int]  # CPU per node
    used: list[int]  # per run, on each of its nodes
    asked: int
    members: list[int]  # runs of the workload's group
    apart: list[int]  # label per node: it shares none with a member

    def nodes_of(self, run: int) -> set[int]:
        """Return the nodes a run is on."""
        return {int(self.crowd.state.gpu.node[gpu]) for gpu, _milli in self.crowd.pieces[run]}

    def wants(self, gone: list[int]) -> dict[str, Any]:
        """Return what the workload may have when runs are gone."""
        room = list(self.offered)
        staying = [run for run in range(len(self.used)) if run not in gone]
        for run in staying:
            for node in self.nodes_of(run):
                room[node] -= self.used[run]
        room = [max(0, free) // self.asked if self.asked else 99 for free in room]
        taken = {self.apart[node] for run in staying if run in self.members for node in self.nodes_of(run)}
        room = [0 if label in taken else free for free, label in zip(room, self.apart, strict=True)]
        had = self.crowd.wants.room
        return {"room": room if had is None else [min(pair) for pair in zip(room, had, strict=True)]}


@st.composite
def contests(draw: st.DrawFn) -> Contest:
    """Draw a crowd with a contest; a run's CPU stands in its first row on each node, as the fold puts it."""
    crowd = draw(wishful_crowds())
    state = crowd.state
    offered = [draw(st.integers(2, 6)) for _ in range(state.node.used)]
    used = [draw(st.integers(0, 3)) for _ in crowd.pieces]
    state.node.column("cpu_milli")[:] = offered
    for run in range(len(crowd.pieces)):
        told: list[int] = []
        alloc = int(state.run.first_alloc[run])
        while alloc >= 0:
            node = int(state.gpu.node[int(state.alloc.gpu[alloc])])
            if node not in told:
                state.alloc.cpu_milli[alloc] = used[run]
                state.node.used_cpu_milli[node] += used[run]
                told.append(node)
            alloc = int(state.alloc.next[alloc])
    asked, grouped, racks = draw(st.integers(0, 3)), draw(st.booleans()), draw(st.booleans())
    members = [run for run in range(len(crowd.pieces)) if draw(st.integers(0, 2)) == 0] if grouped else []
    wish = wish_of(state, 0)._replace(cpu_milli=asked, group="A:g" if grouped else "", apart_level=1 + racks if grouped else 0)
    if grouped:
        state.group.add("A:g")
        give_wish(state, [run + 1 for run in members], Wish(apart_level=1, group="A:g"))
    give_wish(state, [0], wish)
    rack = state.node.column("domain_1").tolist()
    apart = [rack[node] or 10 + node if racks else node for node in range(state.node.used)]
    return Contest(crowd, offered, used, asked, members, apart)


def give_wish(state: State, workloads: list[int], wish: Wish) -> None:
    """Let workloads have a wish."""
    if wish == Wish():
        return
    row = state.wish.row_of.get(wish.key)
    row = state.wish.add(wish.key) if row is None else row
    state.wish.put(row, {name: getattr(wish, name) for name in COLUMNS})
    state.wish.group[row] = 1 if wish.group else 0
    state.workload.wish[workloads] = row + 1


@settings(quick, max_examples=500)
@given(contests())
def test_where_more_than_gpus_is_scarce_a_plan_is_valid_and_nobody_goes_in_vain(case: Contest) -> None:
    crowd, field = case.crowd, case.crowd.field
    nodes, per_node = int(crowd.state.workload.nodes[0]), int(crowd.state.workload.milli_per_node[0])
    cluster = cluster_of(crowd)

    def starts(gone: list[int]) -> bool:
        after = replace(cluster, used=cluster.used.copy())
        for run in gone:
            for gpu, amount in crowd.pieces[run]:
                after.used[gpu] -= amount
        return oracles.fits(after, 0, nodes, per_node, 1, replace(crowd.wants, **case.wants(gone)))

    found = choosing.least_plan(crowd.state, field, 0, crowd.masked)

    expected = oracles.least_victims(
        cluster, nodes, per_node, crowd.pieces, field.eligible.tolist(), field.leaf.tolist(), field.room.tolist(),
        field.cost.tolist(), crowd.wants, case.wants,
    )  # fmt: skip
    event(f"{'plan' if found else 'none'} of {'plan' if expected else 'none'}")
    if expected == () or found is None:
        return
    victims, gpus = found
    assert starts(victims)
    assert all(field.eligible[run] for run in victims)
    assert all(not starts([other for other in victims if other != run]) for run in victims), "each is needed"
    assert len(gpus) * min(1_000, per_node) == nodes * per_node
    if preempting._allowed(crowd.state, field, ordered(crowd, victims), int(crowd.state.workload.gpus_milli[0])):
        assert expected is not None
        assert cost_of(crowd, victims) >= expected


@settings(quick, max_examples=500)
@given(contests())
def test_where_more_than_gpus_is_scarce_and_everybody_may_go_a_plan_is_found(case: Contest) -> None:
    crowd, field = case.crowd, case.crowd.field
    field.room[:] = 1 << 40
    nodes, per_node = int(crowd.state.workload.nodes[0]), int(crowd.state.workload.milli_per_node[0])

    found = choosing.least_plan(crowd.state, field, 0, crowd.masked)

    expected = oracles.least_victims(
        cluster_of(crowd), nodes, per_node, crowd.pieces, field.eligible.tolist(), field.leaf.tolist(), field.room.tolist(),
        field.cost.tolist(), crowd.wants, case.wants,
    )  # fmt: skip
    assert bool(found) or not expected, f"a plan of cost {expected} was not found"


def cluster_of(crowd: Crowd) -> Cluster:
    """Return the columns as the oracle for space takes them."""
    node, gpu = crowd.state.node, crowd.state.gpu
    return Cluster(
        node.column("pool"), node.column("first_gpu"), node.column("gpus"), crowd.masked,
        gpu.column("used_milli").copy(), gpu.column("out"), gpu.column("held_by"),
    )  # fmt: skip


def cost_of(crowd: Crowd, victims: list[int]) -> tuple[int, ...]:
    return tuple(int(crowd.field.cost[victims, k].sum()) for k in range(targets.COSTS))


def least_of(crowd: Crowd) -> tuple[int, ...] | None:
    """Return the cost of the best plan by the naive equivalent; () when nobody has to go."""
    state = crowd.state
    nodes, per_node = int(state.workload.nodes[0]), int(state.workload.milli_per_node[0])
    field = crowd.field
    return oracles.least_victims(
        cluster_of(crowd), nodes, per_node, crowd.pieces, field.eligible.tolist(), field.leaf.tolist(), field.room.tolist(),
        field.cost.tolist(), crowd.wants,
    )  # fmt: skip


@quick
@given(wishful_crowds())
def test_the_victims_for_a_wish_are_those_of_least_cost_over_all_subsets(crowd: Crowd) -> None:
    check_least(crowd)


@quick
@given(crowds())
def test_the_victims_are_those_of_least_cost_over_all_subsets(crowd: Crowd) -> None:
    check_least(crowd)


def check_least(crowd: Crowd) -> None:
    """The search finds a plan of the least cost, or none where no subset of the runs is one."""
    event(f"block: {crowd.wants.block}, within: {crowd.wants.within is not None}, plan: {bool(least_of(crowd))}")
    masked = crowd.masked | choosing._hopeless(crowd.state, crowd.field, 0)
    found, proved = choosing._search(crowd.state, crowd.field, 0, masked)

    expected = least_of(crowd)
    assert proved
    plan = choosing.least_plan(crowd.state, crowd.field, 0, crowd.masked)
    assert (plan[0] if plan else []) == found
    if expected == ():
        assert found == [], "nobody goes when it fits as it is"
    elif expected is None:
        assert found == [], f"{found} go and there is no plan"
    else:
        assert found, f"a plan of cost {expected} was not found"
        assert cost_of(crowd, found) == expected
        needed = choosing._fill_back(crowd.state, 0, found, False, crowd.masked)
        assert needed is not None
        assert needed[0] == found, "the least plan has nobody to put back"
        assert preempting._allowed(crowd.state, crowd.field, ordered(crowd, found), int(crowd.state.workload.gpus_milli[0]))


def ordered(crowd: Crowd, victims: list[int]) -> list[int]:
    return sorted(victims, key=lambda run: (crowd.field.leaf[run], -crowd.field.milli[run], run))


def test_oracle_by_hand() -> None:
    # two nodes of two; a gang of two nodes and two single runs: the gang is dearer than one, cheaper than two
    gang = [(0, 1000), (2, 1000)]
    runs = [(0, True, gang), (1, True, [(1, 1000)]), (1, True, [(3, 1000)])]
    costs = [[3, 0, 0, 2000, 0, 0, 0], [2, 0, 0, 1000, 0, 0, 0], [2, 0, 0, 1000, 0, 0, 0]]

    def best(shape: tuple[int, int], room: list[int]) -> tuple[int, ...] | None:
        return least_of(crowd_of([2, 2], runs, costs, room, shape, [0] * 4))

    assert best((1, 1000), [9_000, 9_000]) == (2, 0, 0, 1000, 0, 0, 0)
    assert best((2, 1000), [9_000, 9_000]) == (3, 0, 0, 2000, 0, 0, 0)
    assert best((2, 1000), [2_000, 9_000]) == (4, 0, 0, 2000, 0, 0, 0), "the gang's budget has no room for it"
    assert best((2, 1000), [2_000, 3_000]) is None, "2 * 2 - 1 is not below 3"
    assert best((1, 2000), [9_000, 9_000]) == (5, 0, 0, 3000, 0, 0, 0)


def test_more_than_needed_and_one_gang_is_never_taken() -> None:
    # one GPU on each of three nodes is wanted, and each is full with a run of four: 12 > 3 + 4
    runs = [(0, True, [(4 * node + k, 1000) for k in range(4)]) for node in range(3)]
    costs = [[1, 0, 0, 4000, 0, 0, 0] for _ in runs]

    three = crowd_of([4, 4, 4], runs, costs, [100_000], (3, 1000), [0] * 12)
    two = crowd_of([4, 4, 4], runs, costs, [100_000], (2, 2000), [0] * 12)

    assert least_of(three) is None
    assert choosing._search(three.state, three.field, 0, three.masked) == ([], True)
    assert len(choosing._search(two.state, two.field, 0, two.masked)[0]) == 2, "8 <= 4 + 4"


@pytest.mark.parametrize("room", [5_000, 13_000, 2**40])
def test_many_equal_nodes_are_no_long_search(room: int) -> None:
    """Targets that can be exchanged are not tried one after the other: also the proof that there is no plan is short."""
    nodes = 200
    runs = [(node % 4, True, [(4 * node + k, 1000) for k in range(4)]) for node in range(nodes)]
    costs = [[node % 7, 0, 0, 4000, 0, node, 0] for node in range(nodes)]
    crowd = crowd_of([4] * nodes, runs, costs, [room] * 4, (16, 4000), [0] * 4 * nodes)
    steps: list[int] = []
    original = victims.search

    def search(*arguments: object) -> int:
        steps.append(int(original(*arguments)))
        return steps[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "search", search)
        found, proved = choosing._search(crowd.state, crowd.field, 0, crowd.masked)

    given_by_each = {5_000: 1, 13_000: 2}.get(room, 4)  # 2 * given - 4 < room / 1000
    assert len(found) == (16 if given_by_each == 4 else 0)
    assert proved
    assert abs(steps[0]) < 3_000


def test_what_a_limited_search_finds_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "STEPS_MAX", 20)
    runs = [(run % 3, True, [(run, 1000)]) for run in range(32)]
    costs = [[run * run % 11, 0, 0, 1000, 0, 0, 0] for run in range(32)]
    crowd = crowd_of([4] * 8, runs, costs, [7_000, 9_000, 11_000], (3, 3000), [0] * 32)

    found, proved = choosing._search(crowd.state, crowd.field, 0, crowd.masked)

    assert found
    assert not proved
    filled = choosing._fill_back(crowd.state, 0, found, proved, crowd.masked)
    assert filled is not None
    assert preempting._allowed(crowd.state, crowd.field, ordered(crowd, filled[0]), 9_000)


def test_a_plan_is_dropped_when_what_is_left_of_it_breaks_the_rule() -> None:
    """3C-50: after putting back, every remaining victim is judged again."""
    runs = [(0, True, [(0, 1000), (1, 1000)]), (0, True, [(2, 1000)])]
    crowd = crowd_of([4], runs, [[1, 0, 0, 1000, 0, 0, 0]] * 2, [5_100], (1, 3000), [0] * 4)

    assert preempting._allowed(crowd.state, crowd.field, [0, 1], 3_000), "2 * 3 - 1 < 5.1"
    crowd.field.room[0] = 5_000
    assert not preempting._allowed(crowd.state, crowd.field, [0, 1], 3_000)
    crowd.field.room[0] = 9_000
    assert preempting._allowed(crowd.state, crowd.field, [0, 1], 1_000), "3 <= 1 + 2"
    assert not preempting._allowed(crowd.state, crowd.field, [0, 1], 999)
