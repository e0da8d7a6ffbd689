"""What the core saw at a record is what the projection answers for it, and what a live core saw when it was there."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from apportion.adapters.past.replaying import state_at
from apportion.adapters.proving.waypoints import Waypoint
from apportion.adapters.seen import nodes, tree, work
from apportion.adapters.seen.sight import Sight, sight_at
from apportion.adapters.simulation.driver import Logs
from apportion.core.decisions import PendingExplained, decode_batch
from apportion.core.engine import Core
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import simulated
from tests.proving.keeping import Decisions, Events

POINTS = (3, 40, 150, 260, 375, 479)  # of the batches


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Return a troubled history in which nodes fail, runs are preempted and somebody always waits."""
    return simulated(67, hours=16, nodes=3, rough=False)


@pytest.fixture(scope="module")
def projection(logs: Logs) -> Iterator[Projection]:
    with Projection() as made:
        made.ingest(logs.records, logs.batches)
        made.refresh()
        yield made


@functools.cache
def _made(seq: int, number: int) -> Sight:
    logs = _LOGS[number]
    return asyncio.run(sight_at(Events(logs.records), Decisions(logs.batches), seq))


_LOGS: dict[int, Logs] = {}


def seen(logs: Logs, seq: int) -> Sight:
    """Return what was seen, made once for all tests."""
    _LOGS[id(logs)] = logs
    return _made(seq, id(logs))


def points(logs: Logs) -> list[int]:
    """Return the ticks that the tests look at."""
    return [logs.batches[at * len(logs.batches) // 480].input_seq for at in POINTS]


def asked(projection: Projection, name: str, seq: int, **params: Any) -> list[dict[str, Any]]:
    return queries.run(projection.con, name, seq=seq, **params).dicts()


def test_the_queue_is_the_projections(logs: Logs, projection: Projection) -> None:
    waited = 0
    for seq in points(logs):
        rows = [row for row in work.waiting(seen(logs, seq)) if row["state"] == "pending"]
        told = {row["workload"]: row for row in asked(projection, "queue", seq)}
        waited += len(rows)

        assert {row["workload"] for row in rows} == told.keys()
        for row in rows:
            other = told[row["workload"]]
            assert (row["pool"], row["budget"], row["gpus_milli"], row["priority"]) == tuple(
                other[name] for name in ("pool", "budget", "gpus_milli", "priority")
            )
            assert row["ahead"] == other["position"] - 1
            assert (row["submit_ms"], row["submitted_seq"]) == (other["submitted_ms"], other["submitted_seq"])
            assert row["reason"] == other["reason"]
    assert waited


def test_placements_are_the_projections(logs: Logs, projection: Projection) -> None:
    for seq in points(logs):
        sight = seen(logs, seq)
        found = {(row["workload"], row["run"]): row for row in work.runs(sight)}
        told = [row for row in asked(projection, "queue", seq, state="all") if row["state"] != "pending" and row["on_nodes"]]

        assert found.keys() == {(row["workload"], row["run"]) for row in told}
        for row in told:
            mine = found[row["workload"], row["run"]]
            assert sorted({piece["node"] for piece in mine["pieces"]}) == row["on_nodes"]
            assert sum(len(piece["gpus"]) * piece["milli_each"] for piece in mine["pieces"]) == row["gpus_milli"]
            assert (mine["payer"], mine["protected_until_ms"]) == (row["payer"], row["protected_until_ms"])
        for node in asked(projection, "nodes", seq):
            mine = next((row for row in nodes.nodes(sight) if row["node"] == node["node"]), None)
            assert (mine is None) == (node["gpus"] == 0)
            if mine is not None:
                assert (mine["busy_milli"], mine["gpus"]) == (node["used_milli"], node["gpus"])
                assert sorted(mine["runs"]) == sorted(node["runs"])
                assert (mine["state"] == "ok") == (node["state"] == "in service")


def test_balances_are_the_projections(logs: Logs, projection: Projection) -> None:
    metered = 0
    for seq in points(logs):
        found = {(row["pool"], row["budget"]): row for row in tree.budgets(seen(logs, seq))}
        told = asked(projection, "budgets", seq)

        assert found.keys() == {(row["pool"], row["budget"]) for row in told}
        for row in told:
            mine = found[row["pool"], row["budget"]]
            assert (mine["share_ppm"], mine["closed"]) == (row["share_ppm"], row["closed"])
            assert (mine["charged_gpu_us"], mine["unfunded_gpu_us"]) == _used(projection, row, seq)
            if row["metered"]:
                metered += 1
                reserved = row["reserved_gpu_us"]
                assert mine["left_gpu_us"] == row["left_gpu_us"] + reserved
                assert mine["granted_gpu_us"] - mine["charged_gpu_us"] == mine["left_gpu_us"]
    assert metered


def _used(projection: Projection, row: dict[str, Any], seq: int) -> tuple[int, int]:
    """Return what a budget was charged and what its runs used unfunded, by the projection."""
    if row["metered"]:
        return row["charged_gpu_us"], row["unfunded_gpu_us"]
    return row["funded_gpu_us"], row["unfunded_gpu_us"]


def test_entitlements_reservations_and_reasons_are_those_the_cycle_decided_by(logs: Logs) -> None:
    """The reasons that a cycle wrote carry the numbers that are shown after it."""
    compared = 0
    decoded = [decode_batch(stored.body) for stored in logs.batches]
    telling = [batch for batch in decoded if any(isinstance(decision, PendingExplained) for decision in batch.decisions)]
    for batch in telling[::5]:
        sight = seen(logs, batch.seq)
        rows = {row["workload"]: row for row in work.waiting(sight)}
        kept = {row["workload"]: row for row in work.reservations(sight)}
        for decision in batch.decisions:
            if isinstance(decision, PendingExplained) and decision.workload in rows:
                row = rows[decision.workload]
                assert (row["reason"], row["reason_now"]) == (decision.reason, decision.reason)
                shared = row["numbers"].keys() & decision.numbers.keys()
                assert {name: row["numbers"][name] for name in shared} == {name: decision.numbers[name] for name in shared}
                assert shared
                if decision.reason == "protected_runs":
                    assert (kept[decision.workload]["until_ms"] or 0) == decision.numbers["earliest_ms"]
                compared += 1
        for pool in tree.pools(sight):
            top = [row for row in tree.budgets(sight) if row["pool"] == pool["pool"] and "/" not in row["budget"]]
            assert sum(row["allowance_milli"] for row in top) <= pool["gpus_milli"]
    assert compared > 10


def test_it_is_the_same_from_any_state_that_is_kept(logs: Logs) -> None:
    last = points(logs)[-2]
    seq = last + 1
    whole = seen(logs, seq)
    for kept_seq in (last - 1, last - 40):
        core = asyncio.run(state_at(Events(logs.records), Decisions(logs.batches), kept_seq))
        kept = Waypoint(kept_seq, core.snapshot(), "a test")

        async def find(limit: int, kept: Waypoint = kept) -> Waypoint | None:
            assert limit == last - 1
            return kept

        sight = asyncio.run(sight_at(Events(logs.records), Decisions(logs.batches), seq, find))

        assert (sight.begun_seq, sight.begun_from) == (kept_seq, "a test")
        assert (sight.digest, sight.cycle_seq) == (whole.digest, last)
        for part in (tree.pools, tree.budgets, work.runs, work.waiting, work.reservations, work.holds, nodes.nodes):
            assert part(sight) == part(whole)


def test_before_the_first_cycle_there_is_a_tree_and_nothing_was_decided(logs: Logs) -> None:
    sight = seen(logs, logs.batches[0].input_seq - 1)

    assert sight.cycle is None
    assert tree.pools(sight)
    assert all(row["entitled_milli"] is None for row in tree.budgets(sight))
    assert work.reservations(sight) == work.holds(sight) == []
    assert sight.digest == asyncio.run(state_at(Events(logs.records), Decisions(logs.batches), sight.core.seq)).digest()
    assert seen(logs, 0).digest == Core.new().digest()
