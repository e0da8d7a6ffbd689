"""Questions of auditors: each answer is compared with another account, made from the decisions or the core, without SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from apportion.adapters.simulation.driver import Logs
from apportion.core import decisions as d
from apportion.core.decisions import CycleBatch, decode_batch
from apportion.core.engine import Core
from apportion.core.events import NodeHeartbeat, PolicyActivated, RunStarted
from apportion.core.state.holdings import gpus_of_run
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import DAY_MS, MINUTE_MS, Story, job, opened, simulated

LOGS = {"policy": "drf", "hours": 30, "nodes": 3}  # over a midnight, with preemptions, losses and refunds
Gpu = tuple[str, int]


def rows(con: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[dict[str, Any]]:
    return queries.run(con, name, **params).dicts()


def all_of(con: duckdb.DuckDBPyConnection, sql: str, *values: int) -> list[tuple[Any, ...]]:
    return con.execute(sql, list(values)).fetchall()


@pytest.fixture(scope="module")
def logs() -> Logs:
    return simulated(8, **LOGS)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def con(logs: Logs) -> Iterator[duckdb.DuckDBPyConnection]:
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        yield projection.con


@pytest.fixture(scope="module")
def batches(logs: Logs) -> list[CycleBatch]:
    return [decode_batch(stored.body) for stored in logs.batches]


def test_usage_by_day_adds_up_to_the_allocations_exactly(con: duckdb.DuckDBPyConnection) -> None:
    at = queries.as_of(con)
    by_day = Counter[tuple[Any, ...]]()
    for day, *key, amount in all_of(con, "select * from mart.usage_days(?, ?)", *at):
        assert amount > 0
        assert day in (20_454, 20_455)
        by_day[tuple(key)] += amount
    whole = Counter[tuple[Any, ...]]()
    for *key, amount in all_of(con, "select pool, budget, principal, kind, payer, gpu_us from mart.alloc_at(?, ?)", *at):
        whole[tuple(key)] += amount

    assert by_day == whole - Counter()
    told = rows(con, "usage", by=["day", "pool", "budget", "user", "kind"])
    gross = sum(row["funded_gpu_us"] + row["unfunded_gpu_us"] + row["refunded_gpu_us"] for row in told)
    assert gross == sum(whole.values())
    assert len({row["day"] for row in told}) == 2
    assert any(row["refunded_gpu_us"] for row in told)


def test_capacity_and_pillars_are_the_books_of_the_core(con: duckdb.DuckDBPyConnection) -> None:
    days = rows(con, "pillars")
    books = all_of(con, "select supply_gpu_us, idle_gpu_us from fact.books where seq = ?", queries.as_of(con).seq)[0]

    assert [row["day"] for row in days] == ["2026-01-01", "2026-01-02"]
    assert sum(row["installed_gpu_us"] for row in days) == books[0]
    assert sum(row["idle_gpu_us"] for row in days) == books[1]
    for row in days:
        parts = sum(row[name] for name in ("funded_gpu_us", "unfunded_gpu_us", "down_gpu_us", "idle_gpu_us"))
        assert parts == row["installed_gpu_us"]
        assert 0 < row["coverage_ppm"] <= 1_000_000
        assert row["availability_ppm"] * row["installed_gpu_us"] // 1_000_000 <= row["installed_gpu_us"] - row["down_gpu_us"]
        assert 0 < row["impact_ppm"] < 1_000_000
    assert min(row["availability_ppm"] for row in days) < 1_000_000
    ended, useful = all_of(con, "select sum(charged_gpu_us + unfunded_gpu_us), sum(useful_gpu_us) from fact.run_closed")[0]
    assert (sum(row["ended_gpu_us"] for row in days), sum(row["useful_gpu_us"] for row in days)) == (ended, useful)
    heard = all_of(con, "select sum(busy_gpu_us), sum(covered_gpu_us) from mart.heard_at(?)", queries.as_of(con).seq)[0]
    assert (sum(row["busy_gpu_us"] for row in days), sum(row["covered_gpu_us"] for row in days)) == heard


def test_holders_at_an_instant_are_the_placements_of_the_core(con: duckdb.DuckDBPyConnection, logs: Logs) -> None:
    core, at, compared = Core.new(), 0, 0
    for number, batch in enumerate(logs.batches[: len(logs.batches) // 3]):
        while at < batch.input_seq:
            at = core.fold_many(logs.records, at)
        core.trust(batch.body, check=False)
        if number % 37:
            continue
        state = core.state
        held: set[tuple[str, str, int]] = set()
        for ref, row in state.run.row_of.items():
            for gpu in gpus_of_run(state, row):
                held.add((ref, state.node.keys[int(state.gpu.node[gpu])], int(state.gpu.position[gpu])))
        told = {
            (f"{row['workload']}#{row['run']}", row["node"], gpu)
            for row in rows(con, "holders", at_ms=core.time_ms)
            for gpu in row["gpus"]
        }
        assert told == held, core.time_ms
        compared += len(held)
    assert compared > 100


def placements(batches: list[CycleBatch]) -> dict[tuple[str, int], tuple[int, d.RunPlaced]]:
    return {
        (decision.workload, decision.run): (batch.seq, decision)
        for batch in batches for decision in batch.decisions if isinstance(decision, d.RunPlaced)
    }  # fmt: skip


def gpus(placed: d.RunPlaced) -> dict[Gpu, int]:
    return {(piece.node, gpu): piece.milli_each for piece in placed.pieces for gpu in piece.gpus}


def test_what_certificates_freed_is_compared_with_where_the_beneficiary_started(
    con: duckdb.DuckDBPyConnection, batches: list[CycleBatch]
) -> None:
    placed = placements(batches)
    expected: dict[tuple[int, int], tuple[int, int, int | None]] = {}
    for batch in batches:
        for position, decision in enumerate(batch.decisions):
            if not isinstance(decision, d.RunPreempted):
                continue
            freed = gpus(placed[decision.workload, decision.run][1])
            starts = [
                (seq, run) for (workload, _number), (seq, run) in placed.items()
                if workload == decision.certificate.beneficiary and seq >= batch.seq
            ]  # fmt: skip
            seq, used = None, 0
            if starts:
                seq, first = min(starts, key=lambda start: start[0])
                took = gpus(first)
                used = sum(min(milli, took.get(gpu, 0)) for gpu, milli in freed.items())
            expected[batch.seq, position] = (sum(freed.values()), used, seq)
    told = all_of(
        con, "select seq, position, freed_milli, used_milli, beneficiary_placed_seq, became from mart.certificate_use_at(?, ?)",
        *queries.as_of(con),
    )  # fmt: skip

    assert {(row[0], row[1]): (row[2], row[3], row[4]) for row in told} == expected
    assert len(expected) >= 5
    assert all((row[5] == "used") == (row[2] == row[3]) for row in told if row[4] is not None)
    unused = {(row["seq"], row["position"]) for row in rows(con, "certificates_unused")}
    assert unused == {key for key, (freed, used, _seq) in expected.items() if used < freed}


def test_loops_are_pairs_that_took_from_each_other(con: duckdb.DuckDBPyConnection, batches: list[CycleBatch]) -> None:
    taken: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, d.RunPreempted):
                pair = (decision.certificate.victim_budget, decision.certificate.beneficiary_budget)
                if pair[0] != pair[1]:
                    taken[min(pair), max(pair)].append((batch.time_ms, pair[0]))
    expected = {}
    for pair, turns in taken.items():
        sides = Counter(victim for _ms, victim in turns)
        if len(sides) == 2:
            gaps = [
                later - max(before for before, other in turns[:number] if other != victim)
                for number, (later, victim) in enumerate(turns) if any(other != victim for _ms, other in turns[:number])
            ]  # fmt: skip
            expected[pair] = (sides[pair[0]], sides[pair[1]], min(gaps))
    found = {
        (row["one"], row["other"]): (row["other_took"], row["one_took"], row["shortest_ms"])
        for row in rows(con, "loops") if row["what"] == "budgets"
    }  # fmt: skip

    assert found == expected
    shortest = min((gap for _one, _other, gap in expected.values()), default=0)
    assert rows(con, "loops", within_ms=shortest) == []


def test_lost_work_and_fruitless_attempts_are_those_of_the_closings(
    con: duckdb.DuckDBPyConnection, batches: list[CycleBatch]
) -> None:
    lost = Counter[tuple[str, str]]()
    back = Counter[tuple[str, str]]()
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, d.RunClosed) and decision.lost_gpu_us:
                key = (decision.budget, decision.outcome)
                lost[key] += decision.lost_gpu_us
                back[key] += decision.refunded_gpu_us + decision.unfunded_refunded_gpu_us
    told, told_back = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows(con, "lost_work"):
        told[row["budget"], row["outcome"]] += row["lost_gpu_us"]
        told_back[row["budget"], row["outcome"]] += row["refunded_gpu_us"]
    assert told == lost
    assert told_back == back

    kept = defaultdict(list)
    for workload, useful in all_of(con, "select workload, useful_gpu_us from fact.run_closed order by workload, run"):
        kept[workload].append(useful > 0)
    streaks = Counter[tuple[str, int]]()
    for workload, runs in kept.items():
        length = 0
        for was in [*runs, True]:
            if was and length >= 2:
                streaks[workload, length] += 1
            length = 0 if was else length + 1
    assert Counter((row["workload"], row["attempts"]) for row in rows(con, "fruitless", attempts=2)) == streaks
    assert streaks


def test_corrections_are_the_difference_of_two_bills(con: duckdb.DuckDBPyConnection, logs: Logs) -> None:
    """The bill of all time up to an instant, as known then and as known at the end: the difference is listed, run by run."""
    corrected = 0
    for stored in logs.batches[40::150]:
        known = queries.as_of(con, seq=stored.input_seq)
        listed = rows(con, "corrections", known_seq=known.seq)
        span = {"pool": "h100", "budget": "itp", "from_ms": 0, "to_ms": known.time_ms}
        then, now = (rows(con, "bill", seq=seq, **span) for seq in (known.seq, None))
        assert [row["funded_gpu_us"] + row["unfunded_gpu_us"] for row in then] == [
            row["funded_gpu_us"] + row["unfunded_gpu_us"] for row in now
        ]
        for name in ("refunded_gpu_us", "unfunded_refunded_gpu_us"):
            back = {(row["workload"], row["run"]): row[name] for row in then}
            given = {(row["workload"], row["run"]): row[name] - back[row["workload"], row["run"]] for row in now}
            expected = {(row["workload"], row["run"]): row[name] for row in listed if row[name]}
            assert {key: amount for key, amount in given.items() if amount} == expected
        for row in listed:
            assert row["placed_ms"] <= known.time_ms < row["decided_ms"]
            assert row["reason"]
            assert row["author"]
        corrected += len(listed)
    assert corrected


def test_bills_of_days_add_up_to_the_bill_of_all(con: duckdb.DuckDBPyConnection) -> None:
    end_ms = queries.as_of(con).time_ms
    first = 20_454 * DAY_MS
    spans = [(0, end_ms), (first, first + DAY_MS), (first + DAY_MS, end_ms)]
    sums = [
        [
            sum(row[name] for row in rows(con, "bill", pool="h100", budget="itp", from_ms=lo, to_ms=hi))
            for name in ("funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "unfunded_refunded_gpu_us", "cost_gpu_us")
        ]
        for lo, hi in spans
    ]
    total, *days = sums

    assert [sum(amounts) for amounts in zip(*days, strict=True)] == total
    usage = rows(con, "usage", by="pool")[0]
    assert total[4] == usage["funded_gpu_us"]
    assert total[1] - total[3] == usage["unfunded_gpu_us"]
    assert total[2] > 0


def idler() -> Story:
    """A run that sleeps from its first beat on, works for a moment, sleeps again, and is still asleep at the end."""
    story = opened(nodes=1)
    story.say(PolicyActivated(pool="h100", idle_hold_ms=600_000))
    story.say(job("parked", 8), "ann")
    story.tick(1_000)
    story.say(RunStarted(workload="parked", run=1, node="n1"), "n1")

    def beat(number: int, *, idle: bool) -> None:
        story.say(NodeHeartbeat(node="n1", beat=number, runs=("parked#1",), idle_runs=("parked#1",) if idle else ()), "n1")

    for minute in range(60):
        beat(minute + 1, idle=minute != 30)
        story.tick(MINUTE_MS)
    return story


def test_idle_spells_are_exact_and_do_not_overlap() -> None:
    story = idler()
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        spells = sorted(rows(projection.con, "idle_hold"), key=lambda row: row["from_ms"])
        asleep = rows(projection.con, "idle")

    assert [row["idle_ms"] // MINUTE_MS for row in spells] == [31, 29]
    assert [row["is_open"] for row in spells] == [False, True]
    assert all(row["idle_gpu_us"] == 8_000 * row["idle_ms"] for row in spells)
    assert [row["paid_gpu_us"] for row in spells] == [row["idle_gpu_us"] for row in spells]
    assert [row["idle_gpu_us"] for row in asleep] == [spells[-1]["idle_gpu_us"]]
    assert spells[0]["to_ms"] <= spells[1]["from_ms"]


def test_no_answer_has_numbers_that_other_programs_read_as_floats(con: duckdb.DuckDBPyConnection) -> None:
    """HUGEINT leaves DuckDB as a float, in NumPy and in Parquet; no column of any answer may be one."""
    samples = {"varchar": "none", "bigint": DAY_MS, "boolean": True}
    for name, query in queries.catalog().items():
        given = {one.name: samples[one.kind] for one in query.parameters.values() if one.required}
        table = queries.run(con, name, **given)
        assert len(table.types) == len(table.columns) > 0
        wrong = [column for column, kind in zip(table.columns, table.types, strict=True) if "HUGEINT" in kind or "DOUBLE" in kind]
        assert wrong == [], name
