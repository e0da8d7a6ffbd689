"""Named queries: an answer at an earlier sequence is what a projection built only that far answers; and exact small examples."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

from apportion.adapters.seen import standing
from apportion.core import ledger
from apportion.core.engine import Core
from apportion.core.events import (
    BudgetClosed,
    BudgetGranted,
    BudgetSet,
    BudgetTransferred,
    MemberGranted,
    MemberRevoked,
    NodeCordoned,
    NodeHeartbeat,
    PolicyActivated,
    RunCheckpointed,
    RunFinished,
    RunStarted,
    WorkloadCancelled,
    WorkloadReprioritized,
)
from apportion.core.state import schema
from apportion.projections import audit, queries
from apportion.projections.queries import QueryRefused
from apportion.projections.report import report
from apportion.projections.runner import Projection
from tests.projections.history import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, job, opened, simulated

SEEDS = (21,)


def rows(con: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[dict[str, Any]]:
    return queries.run(con, name, **params).dicts()


def arguments(con: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    """Arguments for queries that need some, taken from what is there."""
    first = con.execute("select workload from fact.workload order by seq limit 1").fetchone()
    workload = first[0] if first else "none"
    return {
        "workload": {"workload": workload},
        "job": {"workload": workload},
        "runs": {"workload": workload},
        "why": {"workload": workload},
        "waited": {"budget": "itp/cluster04", "gpus_milli": 1_000},
        "service_curve": {"workload": workload},
        "pool_curve": {"pool": "h100"},
        "plan_changes": {"old": "h100.1", "new": "h100.2"},
        "budget": {"budget": "itp/cluster04"},
        "decision_of": {"event_seq": 100},
        "corrections": {"known_seq": 100},
        "bill": {"budget": "itp/cluster04", "pool": "h100", "from_ms": START_MS, "to_ms": START_MS + 4 * HOUR_MS},
        "queue": {"state": "all"},
        "statement": {"budget": "itp/cluster04", "pool": "h100", "from_ms": START_MS, "to_ms": START_MS + 4 * HOUR_MS},
        "burn_down": {"budget": "itp/cluster04", "pool": "h100", "from_ms": START_MS},
        "entitlement": {"budget": "itp/cluster04", "pool": "h100"},
        "balance": {"budget": "itp/cluster04", "pool": "h100", "from_ms": START_MS, "to_ms": START_MS + 4 * HOUR_MS},
    }.get(name, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_at_a_sequence_does_not_know_what_came_later(seed: int) -> None:
    """For every query: asked of the whole at seq N = asked of a projection that was built up to N (the naive way to look back)."""
    logs = simulated(seed, hours=6)
    choose = random.Random(seed)
    with Projection() as whole, Projection() as prefix:
        whole.ingest(logs.records, logs.batches)
        whole.refresh()
        for count in sorted(choose.sample(range(1, len(logs.batches)), 3)):
            seq = logs.batches[count - 1].input_seq
            prefix.ingest(logs.records[:seq], logs.batches[:count])
            prefix.refresh()
            for name in queries.catalog():
                params = arguments(whole.con, name)
                expected = queries.run(prefix.con, name, **params)
                if name in ("status", "nodes", "pillars"):
                    continue  # heartbeats are kept by five minutes; see below
                assert queries.run(whole.con, name, seq=seq, **params) == expected, f"{name} at {seq}"
            for name in ("status", "nodes", "pillars"):
                heard = (
                    "utilization_ppm", "coverage_ppm", "busy_gpu_us", "covered_gpu_us", "day_utilization_ppm", "day_coverage_ppm",
                    "busy_ppm", "last_beat_ms",
                )  # fmt: skip
                now, then = rows(prefix.con, name), rows(whole.con, name, seq=seq)
                assert [{k: v for k, v in row.items() if k not in heard} for row in then] == [
                    {k: v for k, v in row.items() if k not in heard} for row in now
                ], f"{name} at {seq}"
            assert report(whole.con, seq=seq)["conservation_error"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_see_one_tick_while_commits_go_on(seed: int) -> None:
    """Commits between two refreshes are in the journal; answers must not notice."""
    logs = simulated(seed, hours=6)
    half = len(logs.batches) // 2
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches[:half])
        projection.refresh()
        before = {name: queries.run(projection.con, name, **arguments(projection.con, name)) for name in queries.catalog()}
        projection.ingest([], logs.batches[half:])

        for name, table in before.items():
            assert queries.run(projection.con, name, **arguments(projection.con, name)) == table, name
        assert [found.name for found in audit.audit(projection.con).failed] == []

        projection.refresh()
        assert queries.as_of(projection.con).seq == logs.batches[-1].input_seq > before["status"].as_of_seq


def check_standings(con: duckdb.DuckDBPyConnection, core: Core) -> None:
    """Compare what runs protected, funded and unfunded, and who waits although funded, with the core's own columns."""
    own = {row["budget"]: row for row in rows(con, "standings")}
    for line in (found for found in standing.budgets(core) if found["is_leaf"]):
        told = own.pop(line["budget"], dict.fromkeys((f"{name}_milli" for name in standing.STANDINGS), 0))
        assert {name: told[f"{name}_milli"] for name in standing.STANDINGS} == {
            name: line[f"runs_{name}_milli"] for name in standing.STANDINGS
        }, line["budget"]
    assert not own
    table = core.state.workload
    waiting = {table.keys[row]: int(table.funded_ms[row]) for row in table.live_rows() if table.funded_ms[row]}
    assert {row["workload"]: row["funded_since_ms"] for row in rows(con, "funded_waits", row_limit=1_000)} == waiting


@pytest.mark.parametrize("seed", SEEDS)
def test_money_and_queue_are_those_of_the_core(seed: int) -> None:
    """The core's own columns as the oracle: what each budget has left, runs, waits for; and the order of its queue."""
    logs = simulated(seed, hours=24)
    core, at = Core.new(), 0
    choose = random.Random(seed)
    stops = set(choose.sample(range(len(logs.batches)), 4)) | {len(logs.batches) - 1}
    with Projection() as projection:
        for number, batch in enumerate(logs.batches):
            while at < batch.input_seq:
                at = core.fold_many(logs.records, at)
            core.trust(batch.body)
            if number not in stops:
                continue
            projection.ingest(logs.records[: batch.input_seq], logs.batches[: number + 1])
            projection.refresh()
            state, budget = core.state, core.state.budget
            reserved = ledger.reserved_us(state, state.counters.time_ms)
            lines = {row["budget"]: row for row in rows(projection.con, "budgets")}
            for row in range(budget.used):
                path = state.budget_path(row)
                if not path:
                    continue
                line = lines.pop(path)
                assert line["metered"] == bool(budget.metered[row])
                assert line["reserved_gpu_us"] == reserved[row]
                assert line["funded_gpu_us"] == budget.charged_us[row]
                assert line["unfunded_gpu_us"] == budget.unfunded_us[row]
                assert line["funded_milli"] == budget.funded_milli[row]
                if budget.metered[row]:
                    assert line["left_gpu_us"] == int(budget.granted_us[row]) - int(budget.charged_us[row]) - int(reserved[row])
            assert not lines
            check_standings(projection.con, Core.from_snapshot(core.snapshot()))
            queue = [row["workload"] for row in rows(projection.con, "queue")]
            assert sorted(queue) == sorted(state.workload.keys[row] for row in state.queue[: state.queued])
            for name in dict.fromkeys(state.budget_path(int(state.workload.budget[row])) for row in state.queue[: state.queued]):
                expected = [
                    state.workload.keys[row]
                    for row in state.queue[: state.queued]
                    if state.budget_path(int(state.workload.budget[row])) == name
                ]
                assert [row["workload"] for row in rows(projection.con, "queue", budget=name)] == expected
            status = rows(projection.con, "status")[0]
            assert status["down_milli"] == state.pool.down_milli[0]
            assert status["idle_milli"] == state.pool.idle_milli[0]
            assert status["unfunded_milli"] == state.pool.unfunded_milli[0]
            assert status["installed_milli"] == state.pool.supply_milli[0]


def night_shift() -> Projection:
    """A run over two midnights, of which the budget pays all, beside one on idle cycles; a metered budget with a transfer."""
    story = opened(budgets=(("lab", 1_000_000), ("lab/llm", 500_000), ("lab/vision", 250_000)), gpus=4)
    story.say(MemberGranted(budget="lab/llm", member="bob", role="administer"))
    story.say(BudgetGranted(pool="h100", budget="lab/llm", gpu_us=500 * 3_600_000_000))
    story.say(BudgetGranted(pool="h100", budget="lab/vision", gpu_us=3_600_000_000))
    story.say(BudgetTransferred(pool="h100", from_budget="lab/llm", to_budget="lab/vision", gpu_us=3_600_000_000), "bob")
    story.tick()
    long = job("long", 4, budget="lab/llm", name="night", kind="training", min_runtime_ms=HOUR_MS)
    story.say(long, "bob", after_ms=22 * HOUR_MS)
    story.say(job("idle", 2, budget="lab/vision", kind="batch_inference", min_runtime_ms=0), "ann")
    story.tick()
    story.say(RunStarted(workload="long", run=1, node="n1"), "n1", after_ms=MINUTE_MS)
    story.say(RunStarted(workload="idle", run=1, node="n2"), "n2")
    for _ in range(26 * 30 - 1):
        story.say(NodeHeartbeat(node="n1", beat=len(story.logs.records), busy_milli=3_000), "n1", after_ms=2 * MINUTE_MS)
        story.say(NodeHeartbeat(node="n2", beat=len(story.logs.records), busy_milli=1_000), "n2")
    story.say(RunCheckpointed(workload="long", run=1, progress_ms=25 * HOUR_MS), "n1")
    story.say(RunFinished(workload="long", run=1, node="n1", outcome="succeeded"), "n1", after_ms=MINUTE_MS)
    story.tick()
    projection = Projection()
    projection.ingest(story.logs.records, story.logs.batches)
    projection.refresh()
    return projection


def test_usage_is_split_exactly_at_midnight() -> None:
    with night_shift() as projection:
        con = projection.con
        until_midnight = 2 * HOUR_MS
        total = 26 * HOUR_MS
        by_day = rows(con, "usage", by=["day", "budget", "user", "kind"])
        amounts = ("funded_gpu_us", "unfunded_gpu_us", "user", "kind")
        found = {(row["day"], row["budget"]): tuple(row[name] for name in amounts) for row in by_day}

        assert found == {
            ("2026-01-01", "lab/llm"): (4_000 * until_midnight, 0, "bob", "training"),
            ("2026-01-02", "lab/llm"): (4_000 * (total - until_midnight), 0, "bob", "training"),
            ("2026-01-01", "lab/vision"): (0, 2_000 * until_midnight, "ann", "batch_inference"),
            ("2026-01-02", "lab/vision"): (0, 2_000 * (total - until_midnight), "ann", "batch_inference"),
        }
        whole = rows(con, "usage", by=["pool"])
        assert [(row["pool"], row["funded_gpu_us"], row["unfunded_gpu_us"]) for row in whole] == [
            ("h100", 4_000 * total, 2_000 * total)
        ]
        around = {"since_ms": START_MS + 23 * HOUR_MS, "until_ms": START_MS + 25 * HOUR_MS}
        window = rows(con, "usage", by="budget", budget="lab/llm", **around)
        assert [row["funded_gpu_us"] for row in window] == [4_000 * 2 * HOUR_MS]
        days = rows(con, "capacity")
        assert [row["installed_gpu_us"] for row in days] == [8_000 * DAY_MS, 8_000 * DAY_MS]
        assert all(
            row["installed_gpu_us"]
            == row["funded_gpu_us"] + row["unfunded_gpu_us"] + row["down_gpu_us"] + row["idle_gpu_us"]
            for row in days
        )


def test_budgets_show_grants_transfers_members_and_burn() -> None:
    with night_shift() as projection:
        con = projection.con
        llm = next(row for row in rows(con, "budget_list") if row["budget"] == "lab/llm")
        granted, moved, charged = 500 * 3_600_000_000, 3_600_000_000, 4_000 * 26 * HOUR_MS

        assert (llm["granted_gpu_us"], llm["transferred_gpu_us"], llm["charged_gpu_us"]) == (granted, -moved, charged)
        assert llm["left_gpu_us"] == granted - moved - charged
        assert (llm["entitled_ppm"], llm["author"], llm["reason"]) == (500_000, "ops", "as agreed")
        shown = rows(con, "budget_show", budget="lab/llm")
        assert [(row["section"], row["what"], row["member"], row["gpu_us"]) for row in shown] == [
            ("version", "set", "", 0),
            ("grant", "grant", "", granted),
            ("transfer", "transfer", "", -moved),
            ("member", "charge", "ann", 0),
            ("member", "administer", "bob", 0),
            ("burn", "2026-01-01", "", 4_000 * 2 * HOUR_MS),
            ("burn", "2026-01-02", "", 4_000 * 24 * HOUR_MS),
        ]
        shares = {row["budget"]: row for row in rows(con, "share")}
        assert shares["lab"]["funded_gpu_us"] == charged
        assert shares["lab/vision"]["entitled_ppm"] == 250_000
        assert shares["lab/vision"]["got_ppm"] == 2_000 * 26 * HOUR_MS * 1_000_000 // (8_000 * 48 * HOUR_MS)
        assert {row["account"]: row["amount_gpu_us"] for row in rows(con, "accounts") if row["budget"] == "lab/llm"} == {
            "issued": -granted,
            "budget": granted - moved - charged,
            "reserved": 0,
            "used": charged,
        }


def test_utilization_counts_what_heartbeats_vouch_for() -> None:
    """n1 computes with 3 of 4 GPUs, n2 with 1 of 4; 6 of 8 GPUs are held; the first beat and the gaps vouch for nothing."""
    with night_shift() as projection:
        status = rows(projection.con, "status")[0]
        covered = 4_000 * 2 * MINUTE_MS * (26 * 30 - 2) * 2
        busy = (3_000 + 1_000) * 2 * MINUTE_MS * (26 * 30 - 2)

        assert status["coverage_ppm"] == covered * 1_000_000 // status["supply_gpu_us"]
        used = status["funded_gpu_us"] + status["unfunded_gpu_us"]
        assert status["utilization_ppm"] == busy * status["supply_gpu_us"] * 1_000_000 // (used * covered)
        assert status["impact_ppm"] == 1_000_000
        assert status["availability_ppm"] == 1_000_000


def test_job_by_name_tells_its_life_in_order() -> None:
    with night_shift() as projection:
        con = projection.con
        life = [(row["source"], row["what"]) for row in rows(con, "job", workload="night")]

        assert life == [
            ("event", "workload.submitted"),
            ("decision", "workload.admitted"),
            ("decision", "run.placed"),
            ("allocation", "held"),
            ("ledger", "reserve"),
            ("ledger", "reserve"),
            ("event", "run.started"),
            ("event", "run.checkpointed"),
            ("event", "run.finished"),
            ("decision", "run.closed"),
            ("decision", "workload.closed"),
            ("ledger", "charge"),
            ("ledger", "charge"),
            ("ledger", "charge"),
        ]
        assert rows(con, "workload", workload="night")[0]["state"] == "succeeded"
        assert rows(con, "runs", workload="night")[0]["pieces"] == [
            {"piece": 0, "node": "n1", "gpus": [0, 1, 2, 3], "milli_each": 1_000}
        ]
        assert rows(con, "why", workload="night")[0]["section"] == "ended"


def test_why_tells_reason_place_allowance_and_what_ran_instead() -> None:
    story = opened(nodes=1, budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000)))
    story.say(job("first", 8, budget="lab/a"), "ann")
    story.tick(1_000)
    story.say(job("big", 8, budget="lab/b"), "ann")
    story.say(job("behind", 1, budget="lab/b"), "ann")
    story.tick(1_000)
    story.say(WorkloadReprioritized(workload="behind", priority=5), "ann")
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        con = projection.con
        waiting = [(row["workload"], row["position"], row["reason"], row["age_ms"]) for row in rows(con, "queue")]
        why = rows(con, "why", workload="big")

        assert [row[:2] for row in waiting] == [("behind", 1), ("big", 2)]
        assert all(row[2] for row in waiting)
        assert waiting[0][3] == 2_000
        assert [row["section"] for row in why][:2] == ["now", "reason"]
        assert why[0]["numbers"]["position"] == 2
        assert why[1]["numbers"]["need_milli"] == 8_000
        assert rows(con, "status")[0]["pending_count"] == 2
        assert sum(rows(con, "status")[0]["pending_by_reason"].values()) == 2

def test_funded_waits_tell_who_is_owed_a_place_and_since_when() -> None:
    """The head of b is entitled to half of what a's protected run holds; the one behind it is not a head."""
    story = opened(nodes=1, budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000)))
    story.say(job("first", 8, budget="lab/a"), "ann")
    story.tick(1_000)
    story.say(job("owed", 4, budget="lab/b"), "ann")
    story.say(job("behind", 4, budget="lab/b"), "ann")
    since = story.tick(1_000).time_ms
    story.tick(5_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        con = projection.con

        waits = rows(con, "funded_waits")
        assert [(row["workload"], row["principal"], row["funded_since_ms"], row["funded_wait_ms"]) for row in waits] == [
            ("owed", "ann", since, 5_000)
        ]
        assert waits[0]["reason"] == "protected_runs"
        assert rows(con, "funded_waits", principal="bob") == rows(con, "funded_waits", budget="lab/a") == []
        queue = {row["workload"]: row for row in rows(con, "queue", state="all")}
        assert (queue["owed"]["funded_since_ms"], queue["behind"]["funded_since_ms"]) == (since, None)
        assert (queue["first"]["standing"], queue["owed"]["standing"]) == ("protected", None)
        told = {row["budget"]: row["protected_milli"] for row in rows(con, "standings")}
        assert told == {"lab/a": 8_000}
        assert rows(con, "runs", workload="first")[0]["standing"] == "protected"


def test_idle_tells_who_holds_gpus_and_does_no_work_and_what_it_costs() -> None:
    story = opened(nodes=2)
    story.say(PolicyActivated(pool="h100", idle_hold_ms=600_000))
    story.say(job("parked", 8), "ann")
    story.say(job("busy", 8), "ann")
    story.tick(1_000)
    parked = story.core.state.node.keys[int(story.core.state.run.lead[story.core.state.run.row_of["parked#1"]])]
    story.say(RunStarted(workload="parked", run=1, node=parked), parked)

    def beat(number: int, *, idle: bool) -> None:
        sleeping = ("parked#1",) if idle else ()
        story.say(NodeHeartbeat(node=parked, beat=number, runs=("parked#1",), idle_runs=sleeping), parked)

    def answers() -> tuple[list[dict[str, Any]], int]:
        with Projection() as projection:
            projection.ingest(story.logs.records, story.logs.batches)
            projection.refresh()
            return rows(projection.con, "idle"), rows(projection.con, "why", workload="parked")[0]["numbers"]["idle_since_ms"]

    beat(1, idle=True)
    since_ms = story.now_ms
    for minute in range(1, 21):
        story.now_ms += MINUTE_MS
        for node in ("n1", "n2"):
            story.say(NodeHeartbeat(node=node, beat=100 + minute), node)
        story.tick()

    (row,), told_ms = answers()
    assert (row["workload"], row["run"], row["budget"], row["principal"], row["gpus_milli"]) == ("parked", 1, "lab", "ann", 8_000)
    assert (row["since_ms"], row["payer"], row["limit_ms"]) == (since_ms, "budget", 600_000)
    assert row["idle_gpu_us"] == 8_000 * 20 * MINUTE_MS
    assert told_ms == since_ms

    beat(200, idle=False)
    story.tick(1_000)
    assert answers() == ([], 0)


def test_nodes_tell_state_reason_and_author() -> None:
    story = opened(nodes=3)
    story.say(job("w", 8), "ann")
    story.tick(1_000)
    story.say(NodeCordoned(node="n2", reason="new cable"), after_ms=1_000)
    story.say(NodeHeartbeat(node="n3", beat=1, gpus_down=(3, 5)), "n3")
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        found = {row["node"]: row for row in rows(projection.con, "nodes")}
        status = rows(projection.con, "status")[0]

        assert [found[name]["state"] for name in ("n1", "n2", "n3")] == ["in service", "cordoned", "in service"]
        cordon = found["n2"]
        assert (cordon["reason"], cordon["principal"], cordon["since_ms"]) == ("new cable", "ops", story.now_ms - 1_000)
        assert found["n3"]["gpus_broken"] == [3, 5]
        assert found["n1"]["runs"] == ["w#1"]
        assert found["n1"]["unused_milli"] == 0
        assert status["down_milli"] == 10_000
        assert status["idle_milli"] == 6_000
        # of n3's GPUs 0..7, 3 and 5 are broken: free are six single ones, the aligned pairs 0-1 and 6-7, and no four
        assert status["free_blocks"] == {1: 6, 2: 2}


def test_members_and_versions_hold_from_their_sequence_on() -> None:
    story = opened()
    granted = story.tick(1_000).seq
    story.say(BudgetSet(pool="h100", budget="lab", share_ppm=400_000, reason="less"))
    story.say(MemberRevoked(budget="lab", member="ann"))
    changed = story.tick(1_000).seq
    story.say(BudgetClosed(pool="h100", budget="lab", reason="over"))
    story.tick(1_000)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        con = projection.con

        def members(seq: int | None) -> list[str]:
            return [row["member"] for row in rows(con, "members", seq=seq, budget="lab/x")]

        assert members(granted) == ["ann"]
        assert members(changed) == members(None) == []
        shares = [rows(con, "budgets", seq=seq)[0]["share_ppm"] for seq in (granted, changed, None)]
        assert shares == [1_000_000, 400_000, 400_000]
        assert [rows(con, "budgets", seq=seq)[0]["closed"] for seq in (granted, changed, None)] == [False, False, True]
        by_time = queries.run(con, "budgets", at_ms=START_MS + 2_500)
        assert by_time.as_of_seq == changed


def test_decision_of_an_event() -> None:
    story = opened()
    story.tick()
    asked = story.say(job("w"), "ann")
    refused = story.say(job("x"), "mallory")
    changed = story.say(BudgetSet(pool="h100", budget="lab", share_ppm=1))
    story.tick(1_000)
    story.say(WorkloadCancelled(workload="w"), "ann")
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()

        def answer(seq: int) -> list[tuple[str, str]]:
            return [(row["type"], row["reason"]) for row in rows(projection.con, "decision_of", event_seq=seq)]

        assert answer(asked) == [("workload.admitted", "")]
        assert answer(refused) == [("workload.rejected", "not_permitted")]
        assert answer(changed) == [("accepted", "")]
        assert answer(len(story.logs.records)) == []


def test_waits_count_first_starts_by_size() -> None:
    story = opened(nodes=1)
    for number in range(10):
        story.say(job(f"w{number}", 1), "ann", after_ms=100)
    story.say(job("wide", 8), "ann")
    story.tick(0)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        found = {row["gpus_milli"]: row for row in rows(projection.con, "waits")}

        assert (found[1_000]["submitted"], found[1_000]["started"]) == (10, 8)
        assert (found[1_000]["p50_ms"], found[1_000]["max_ms"]) == (500, 900)
        assert (found[8_000]["started"], found[8_000]["waiting"], found[8_000]["p50_ms"]) == (0, 1, None)
        assert (found[None]["submitted"], found[None]["waiting"]) == (11, 3)


@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        ("nothing", {}, "no query is called 'nothing'; there are: account_totals"),
        ("queue", {"colour": "red"}, "has no parameter colour; it has: budget, pool, principal, row_limit, state"),
        ("job", {}, "needs workload"),
        ("queue", {"row_limit": "many"}, "row_limit must be bigint, got 'many'"),
        ("queue", {"row_limit": 1 << 63}, "row_limit must be within 64 bits, got 9223372036854775808"),
        ("queue", {"seq": 99}, "seq 99 is not projected yet, the projection is at seq 0"),
        ("usage", {"by": ["moon"]}, "cannot be split by moon"),
    ],
)
def test_what_cannot_be_answered_says_why(name: str, params: dict[str, Any], says: str) -> None:
    with Projection() as projection, pytest.raises(QueryRefused, match=says):
        queries.run(projection.con, name, **params)


def test_an_empty_projection_answers_everything_with_nothing() -> None:
    with Projection() as projection:
        for name in queries.catalog():
            queries.run(projection.con, name, **arguments(projection.con, name))
        assert report(projection.con)["supply_gpu_us"] == 0
        assert not audit.audit(projection.con).failed


def test_queries_cannot_write() -> None:
    with Projection() as projection:
        queries.run(projection.con, "status")
        projection.con.execute("begin transaction read only")
        with pytest.raises(duckdb.Error):
            projection.con.execute("insert into meta.refresh values (1)")
        projection.con.execute("rollback")


def test_core_constants_used_by_the_schema_hold() -> None:
    """The states of a workload that the projection tells apart are those of the core."""
    assert (schema.PENDING, schema.HELD, schema.RUNNING) == (2, 3, 4)
