"""What was told of starts, and how it held: counted again from the decisions alone; and how long others waited."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.adapters.cli.expecting import lines_of
from apportion.core.decisions import PendingExplained, RunPlaced, WorkloadAdmitted, decode_batch
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import simulated

SEED = 21


@pytest.fixture(scope="module")
def projected() -> Any:
    logs = simulated(SEED, hours=24)
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        yield logs, projection


def median(values: list[int]) -> int | None:
    """Return the smallest value that half do not exceed."""
    return sorted(values)[(len(values) - 1) // 2] if values else None


def test_estimates_are_those_told_and_starts_those_that_came(projected: Any) -> None:
    logs, projection = projected
    budget_of, told, placed = dict[str, str](), dict[str, tuple[int, int, str]](), dict[str, list[tuple[int, int]]]()
    for stored in logs.batches:
        batch = decode_batch(stored.body)
        for one in batch.decisions:
            if isinstance(one, WorkloadAdmitted):
                budget_of[one.workload] = one.budget
            elif isinstance(one, RunPlaced):
                placed.setdefault(one.workload, []).append((batch.seq, batch.time_ms))
            elif isinstance(one, PendingExplained):
                planned = one.numbers.get("planned_ms", 0)
                at_ms = planned or (one.numbers.get("earliest_ms", 0) if one.reason == "protected_runs" else 0)
                if at_ms > batch.time_ms:
                    told.setdefault(one.workload, (batch.seq, at_ms, "plan" if planned else "reservation"))
    end_ms = decode_batch(logs.batches[-1].body).time_ms
    late, open_ = dict[str, list[int]](), dict[str, list[int]]()
    for workload, (seq, at_ms, basis) in told.items():
        starts = [time_ms for placed_seq, time_ms in placed.get(workload, []) if placed_seq > seq]
        if starts:
            late.setdefault(basis, []).append(starts[0] - at_ms)
        else:
            open_.setdefault(basis, []).append(at_ms)

    found = {row["basis"]: row for row in queries.run(projection.con, "estimates").dicts()}

    assert sum(map(len, late.values())) > 5
    assert found.keys() == late.keys() | open_.keys()
    for basis, row in found.items():
        mine, waiting = late.get(basis, []), open_.get(basis, [])
        assert (row["told"], row["started"]) == (len(mine) + len(waiting), len(mine))
        assert (row["to_come"], row["overdue"]) == (sum(ms >= end_ms for ms in waiting), sum(ms < end_ms for ms in waiting))
        assert row["in_time"] == sum(value <= 60_000 for value in mine)
        assert row["median_late_ms"] == median(mine)
    (row,) = queries.run(projection.con, "estimates", budget="nobody's").dicts() or [{}]
    assert row == {}


def test_waits_of_others_are_those_that_were_longer(projected: Any) -> None:
    _logs, projection = projected
    rows = projection.con.execute("""
        select w.budget, w.gpus_milli, min(r.placed_ms) - any_value(w.time_ms) as wait_ms
        from fact.workload as w join fact.run_closed as r using (workload)
        where w.service = '' and w.admitted_seq > 0 group by w.workload, w.budget, w.gpus_milli
    """).fetchall()
    sizes = dict[tuple[str, int], list[int]]()
    for budget, milli, wait_ms in rows:
        sizes.setdefault((budget, milli), []).append(wait_ms)
    (budget, milli), waits = max(sizes.items(), key=lambda item: len(item[1]))
    known = sorted(waits)[len(waits) // 2]

    (row,) = queries.run(projection.con, "waited", budget=budget, gpus_milli=milli, waited_ms=known).dicts()

    assert row["started"] >= sum(wait > known for wait in waits) > 0
    assert 0 < row["p50_more_ms"] <= row["p90_more_ms"]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"start_ms": None, "basis": "nothing", "like_it": 0}, "nothing says when"),
        ({"start_ms": 1, "by_ms": 2, "basis": "waits", "like_it": 9, "still_waiting": 2, "waited_ms": 5}, "of 9 jobs of lab"),
        ({"start_ms": 1, "basis": "reservation"}, "nodes are reserved for it"),
        ({"start_ms": 1, "basis": "reservation", "guessed": 1}, "a guess: 1 of them states no end"),
        ({"start_ms": 1, "basis": "plan"}, "so it is planned"),
    ],
)
def test_the_basis_is_always_said(expected: dict[str, Any], words: str) -> None:
    row = {"basis": "reservation", "told": 4, "started": 2, "to_come": 1, "overdue": 1, "in_time": 2, "median_late_ms": -60_000}

    lines = lines_of({**expected, "past": [row]}, "lab")

    assert words in lines[0]
    assert "2 of 3 started" in lines[1]
    assert "1m early" in lines[1]
