"""The fold of decisions into one node's orders: reading again, or in other pieces, changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.agent.orders import Orders
from apportion.core.decisions import (
    Certificate,
    CycleBatch,
    MoveCertificate,
    Piece,
    Rejected,
    RunCancelled,
    RunClosed,
    RunDrained,
    RunMoved,
    RunPlaced,
    RunPreempted,
    RunRetired,
    RunStop,
    WorkloadAdmitted,
    WorkloadClosed,
)

WORKLOADS = ["a", "b", "c"]
NODES = ["n1", "n2", "n3"]
ZEROS: dict[str, Any] = dict.fromkeys(Certificate.__struct_fields__, 0)
CERTIFICATE = msgspec.convert(
    {**ZEROS, "beneficiary": "z", "beneficiary_budget": "x", "victim_budget": "y", "policy": "fair", "numbers": {}},
    Certificate,
)
names = st.sampled_from(WORKLOADS)
numbers = st.integers(1, 2)


@st.composite
def placements(draw: st.DrawFn) -> RunPlaced:
    nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True))
    gpus = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True)))
    return RunPlaced(
        workload=draw(names),
        run=draw(numbers),
        budget="x",
        pool="p",
        gpus_milli=1_000,
        pieces=tuple(Piece(node, gpus, 1_000) for node in nodes),
        payer="budget",
        why="within_allowance",
        protected_until_ms=0,
        reserved_gpu_us=0,
    )


def closed(workload: str, run: int) -> RunClosed:
    return RunClosed(
        workload=workload,
        run=run,
        budget="x",
        pool="p",
        outcome="lost",
        placed_ms=0,
        end_ms=0,
        gpus_milli=1,
        charged_gpu_us=0,
        unfunded_gpu_us=0,
    )


def preempted(workload: str, run: int, at_ms: int) -> RunPreempted:
    return RunPreempted(workload=workload, run=run, grace_until_ms=at_ms, certificate=CERTIFICATE)


def admitted(workload: str, seq: int) -> WorkloadAdmitted:
    return WorkloadAdmitted(
        workload=workload, event_seq=seq, budget="x", pool="p", nodes=1, milli_per_node=1, min_runtime_ms=0
    )


decisions = st.one_of(
    placements(),
    st.builds(closed, names, numbers),
    st.builds(preempted, names, numbers, st.integers(0, 10_000)),
    st.builds(
        lambda w, r, t: RunCancelled(workload=w, run=r, event_seq=1, grace_until_ms=t),
        names,
        numbers,
        st.integers(0, 9),
    ),
    st.builds(
        lambda w, r, t: RunDrained(workload=w, run=r, node="n1", deadline_ms=1, grace_until_ms=t, payer="unfunded"),
        names,
        numbers,
        st.integers(0, 9),
    ),
    st.builds(
        lambda w, r, t: RunRetired(workload=w, run=r, service="s", grace_until_ms=t),
        names,
        numbers,
        st.integers(0, 9),
    ),
    st.builds(
        lambda w, r, t: RunMoved(
            workload=w, run=r, grace_until_ms=t, pieces=(), payer="unfunded", certificate=MoveCertificate(
                beneficiary="x", beneficiary_budget="A", needed_milli=1, free_milli=1, moves=1, moved_milli=1, gpus_milli=1,
                ran_ms=1, lost_gpu_us=0, plan_lost_gpu_us=0,
            ),
        ),
        names,
        numbers,
        st.integers(0, 9),
    ),
    st.builds(admitted, names, st.integers(1, 99)),
    st.builds(lambda w: WorkloadClosed(workload=w, outcome="lost", runs=1), names),
)


def possible(taken: list[list[Any]]) -> list[list[Any]]:
    """Leave out what no core says: a second placing of a run, or a word about one that is not in progress."""
    placed: set[str] = set()
    over: set[str] = set()
    kept: list[list[Any]] = []
    for cycle in taken:
        kept.append([])
        for decision in cycle:
            key = f"{decision.workload}#{getattr(decision, 'run', '')}"
            about_a_run = isinstance(decision, RunClosed | RunStop)
            if isinstance(decision, RunPlaced) and key in placed:
                continue
            if about_a_run and (key not in placed or key in over):
                continue
            if isinstance(decision, RunPlaced):
                placed.add(key)
            if isinstance(decision, RunClosed):
                over.add(key)
            kept[-1].append(decision)
    return kept


batches = st.lists(st.lists(decisions, max_size=3), max_size=5).map(possible)


def batch(number: int, taken: list[Any]) -> CycleBatch:
    return CycleBatch(
        core=1, cycle=number, seq=number, time_ms=number * 100, chain="", digest="", decisions=tuple(taken)
    )


def folded(log: list[CycleBatch], start: Orders | None = None) -> Orders:
    orders = start or Orders(node="n1", principal="agent-n1")
    for one in log:
        orders.fold(one)
    return orders


def as_bytes(orders: Orders) -> bytes:
    return msgspec.json.encode(orders)


@given(batches, st.data())
def test_a_restart_anywhere_reading_any_of_it_again_ends_in_the_same_runs(taken: list[list[Any]], data: Any) -> None:
    log = [batch(number, decisions_) for number, decisions_ in enumerate(taken)]
    straight = folded(log)
    saved_at = data.draw(st.integers(0, len(log)))
    again_from = data.draw(st.integers(0, saved_at))
    saved = msgspec.json.decode(as_bytes(folded(log[:saved_at])), type=Orders)
    assert as_bytes(folded(log[saved_at:], saved)) == as_bytes(straight), "the state is all there is to keep"
    twice = folded(log[again_from:], msgspec.json.decode(as_bytes(folded(log[:saved_at])), type=Orders))
    for key, order in straight.live.items():
        seen = twice.live[key]
        assert (seen.gpus, seen.nodes, seen.rank, seen.stop) == (order.gpus, order.nodes, order.rank, order.stop)
    assert twice.live.keys() == straight.live.keys()


@given(batches)
def test_an_order_is_on_this_node_and_closed_only_by_its_own_run(taken: list[list[Any]]) -> None:
    orders = folded([batch(number, decisions_) for number, decisions_ in enumerate(taken)])
    flat = [decision for decisions_ in taken for decision in decisions_]
    placed: dict[str, int] = {}
    for position, decision in enumerate(flat):
        if isinstance(decision, RunPlaced) and any(piece.node == "n1" for piece in decision.pieces):
            placed.setdefault(f"{decision.workload}#{decision.run}", position)
    assert orders.live.keys() == placed.keys()
    for key, position in placed.items():
        order = orders.live[key]
        ends = [d for d in flat[position:] if isinstance(d, RunClosed) and f"{d.workload}#{d.run}" == key]
        assert bool(order.closed) == bool(ends)
        assert order.nodes[order.rank] == "n1"


def test_a_grace_is_a_duration_and_never_negative() -> None:
    placed = RunPlaced(
        workload="a",
        run=1,
        budget="x",
        pool="p",
        gpus_milli=1,
        pieces=(Piece("n1", (0,), 1_000),),
        payer="budget",
        why="within_allowance",
        protected_until_ms=0,
        reserved_gpu_us=0,
    )
    for until_ms, grace_ms in ((750, 250), (100, 0)):
        orders = folded([batch(0, [placed]), batch(5, [preempted("a", 1, until_ms)])])
        stop = orders.live["a#1"].stop
        assert stop is not None
        assert (stop.why, stop.grace_ms) == ("preempted", grace_ms)


def test_only_refusals_of_our_own_words_are_kept() -> None:
    def refused(principal: str) -> Rejected:
        return Rejected(event_seq=7, event_type="node.joined", principal=principal, reason="unknown_pool")

    orders = folded([batch(0, [refused("someone"), refused("agent-n1")])])
    assert [refusal.principal for refusal in orders.refusals] == ["agent-n1"]
