"""The audit: nothing to find in honest histories, and each check finds the fault that it is for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apportion.adapters.simulation.cluster import Policy
from apportion.projections import audit, queries
from apportion.projections.queries import QueryRefused
from apportion.projections.report import report
from apportion.projections.runner import Projection
from tests.projections.history import simulated

NEEDED = (
    "fact.certificate",
    "fact.gpu_state_closed where state = 'broken'",
    "fact.gpu_state_closed where state = 'cordoned'",
    "fact.gpu_state_closed where state = 'suspended'",
    "fact.run_closed where refunded_gpu_us > 0",
    "fact.decision where type = 'run.drained'",
    "fact.decision where type = 'run.moved'",
    "fact.run_closed where nodes > 1",
    "fact.alloc_closed where end_reason = 'funding_changed'",
    "fact.rejection",
    "fact.resize where replicas < before",
    "fact.workload_end where outcome <> 'succeeded'",
    "fact.alloc_open",
    "dim.node_version where gpus = 0",
)

# One fault per check, put into a copy: SQL on the tables of a whole projection. Statements are separated by ";".
FAULTS: dict[str, str] = {
    "admitted_once": """
        insert into fact.decision select * replace (seq + 1 as seq) from fact.decision where type = 'workload.closed' limit 1
    """,
    "alloc_length": """
        update fact.alloc_closed set gpu_us = gpu_us + 1 where alloc_id = (select max(alloc_id) from fact.alloc_closed)
    """,
    "alloc_placed": """
        update fact.alloc_closed set node = 'node999' where alloc_id = (select max(alloc_id) from fact.alloc_closed)
    """,
    "alloc_unique": "insert into fact.alloc_closed select * from fact.alloc_closed limit 1",
    "beneficiary_held": """
        delete from fact.decision where type = 'gpus.reserved' and seq = (select min(seq) from fact.certificate)
    """,
    "beneficiary_served": """
        update fact.decision set body = json_merge_patch(body, '{"certificate": {"beneficiary": "nobody"}}') where type =
        'run.preempted' and seq = (select min(seq) from fact.certificate)
    """,
    "books": "update fact.alloc_closed set end_ms = end_ms + 1, gpu_us = gpu_us + gpus_milli where alloc_id = 1",
    "books_arithmetic": '''update fact.cycle set books = replace(books, '"idle":', '"idle":1') where cycle = 100''',
    "budget_versions": "insert into dim.budget_version select * from dim.budget_version limit 1",
    "capacity_day": """
        update fact.alloc_closed set milli_each = 1200 where alloc_id = (select min(alloc_id) from fact.alloc_closed where
        milli_each = 1000 and end_ms > start_ms)
    """,
    "certificate_arithmetic": """
        update fact.decision set body = json_merge_patch(body, '{"certificate": {"victim_allowance_milli": 90000000, "ran_ms":
        1}}') where type = 'run.preempted' and seq = (select max(seq) from fact.certificate)
    """,
    "cycles_contiguous": "delete from fact.cycle where cycle = 50",
    "decisions_complete": """
        delete from fact.decision where seq = (select max(seq) from fact.decision) and position = 0
    """,
    "decisions_look_back": """
        update fact.decision set event_seq = seq where type = 'workload.admitted' and seq = (select min(seq) from
        fact.decision)
    """,
    "drained_rightly": "update fact.drain_closed set deadline_ms = deadline_ms - 1",
    "drains_respected": "update fact.drain_closed set from_seq = 0, deadline_ms = 0",
    "funded_budget_live": """
        update fact.alloc_closed set budget = 'itp/ghost' where alloc_id = (select max(alloc_id) from fact.alloc_closed where
        payer = 'budget' and why <> 'protected')
    """,
    "gpu_on_node": """
        update fact.alloc_closed set gpus = [70] where alloc_id = (select max(alloc_id) from fact.alloc_closed where end_ms >
        start_ms)
    """,
    "gpu_overlap": """
        insert into fact.alloc_closed select * replace (alloc_id + 1000000 as alloc_id, 'other' as workload) from
        fact.alloc_closed where milli_each > 500 and end_ms > start_ms limit 1
    """,
    "gpu_state_overlap": """
        insert into fact.gpu_state_closed select * replace (state_id + 1000000 as state_id, 'cordoned' as state) from
        fact.gpu_state_closed where to_ms > from_ms limit 1
    """,
    "heartbeat_buckets": "insert into fact.heartbeat_5m_closed select * from fact.heartbeat_5m_closed limit 1",
    "heartbeats_counted": "update fact.heartbeat_5m_closed set samples = samples + 1 where rowid = 5",
    "idle_cycles_unpaid": """
        update fact.alloc_closed set payer = 'budget' where workload in (select workload from fact.workload where
        min_runtime_ms = 0)
    """,
    "idle_said_of_running": """
        insert into fact.decision select * replace ('run.idle' as type, '{"since_ms": 5, "limit_ms": 1}' as body) from fact.decision
        where type = 'run.placed' limit 1
    """,
    "intervals_ordered": """
        update fact.run_closed set end_ms = end_ms + 86400000 where run_id = (select max(run_id) from fact.run_closed)
    """,
    "ledger_balanced": "update fact.ledger set amount_gpu_us = amount_gpu_us + 1 where rowid = 10",
    "ledger_charges": """
        update fact.ledger set amount_gpu_us = amount_gpu_us + sign(amount_gpu_us) where kind = 'charge'
    """,
    "ledger_lines": "insert into fact.ledger select * from fact.ledger where kind = 'charge' limit 1",
    "log_duplicate": "insert into raw.event_log select * from raw.event_log where seq = 1",
    "log_gap": "delete from raw.event_log where seq = 3",
    "log_time": "update raw.event_log set time_ms = 5 where seq = 9",
    "moved_rightly": "update fact.workload set movable = false",
    "moves_served": """
        update fact.decision set body = json_merge_patch(body, '{"certificate": {"beneficiary": "nobody"}}')
        where type = 'run.moved'
    """,
    "no_alternation": """
        update fact.decision set body = json_merge_patch(body, '{"certificate": {"victim_budget": "itp/a",
        "beneficiary_budget": "itp/b"}}') where type = 'run.preempted';
        update fact.decision set body = json_merge_patch(body, '{"certificate": {"victim_budget": "itp/b",
        "beneficiary_budget": "itp/a"}}') where type = 'run.preempted' and seq % 2 = 0;
        update fact.decision set reason = 'above_allowance' where type = 'run.placed' and reason = 'idle_cycles';
        update fact.decision set time_ms = 0 where type = 'run.preempted'
    """,
    "one_run_at_a_time": "update fact.run_closed set end_ms = end_ms + 1000000000 where run = 1 and requeued",
    "pending_explained": "delete from fact.decision where type = 'pending.explained'",
    "pool_accepted": """
        update fact.decision set pool = 'elsewhere' where type = 'run.placed' and seq = (select max(seq) from fact.decision where
        type = 'run.placed')
    """,
    "past_unchanged": """
        update fact.alloc_closed set end_ms = end_ms - 86400000, start_ms = start_ms - 86400000
        where alloc_id = (select max(alloc_id) from fact.alloc_closed)
    """,
    "placed_admitted": """
        delete from fact.decision where type = 'workload.admitted' and workload = (select min(workload) from fact.run_closed)
    """,
    "planned_runs": "update dim.policy_version set policy = 'horizon'",
    "plans_bounded": """
        insert into fact.plan values ('p.1', 1, 0, 0, 'p', 0, 1800000, 48, 8, 101, 100, 1, 0, 0)
    """,
    "plans_laid_out": """
        insert into fact.plan values ('p.1', 1, 0, 0, 'p', 0, 1800000, 48, 8, 1, 1, 1, 0, 0);
        insert into fact.plan_job values ('p.1', 1, 'p', 'a', 0, 4, 0, 4, false), ('p.1', 1, 'p', 'b', 3, 2, 2, 2, false)
    """,
    "plans_swap": """
        insert into fact.plan_service values ('p.1', 1, 'p', 'nobody', 0, 1, 1, 1)
    """,
    "position": "delete from meta.commit_log where last_seq = (select max(last_seq) from meta.commit_log)",
    "postings_authored": """
        delete from raw.event_log where seq = (select min(seq) from fact.ledger where kind = 'grant')
    """,
    "preempted_stops": "delete from fact.decision where type = 'run.closed' and reason = 'preempted'",
    "refunds_for_loss": "update fact.run_closed set refunded_gpu_us = 1 where outcome = 'succeeded'",
    "refusals_answered": """
        update raw.event_log set refused = false where seq = (select min(event_seq) from fact.rejection)
    """,
    "refused_no_effect": """
        update raw.event_log set refused = true where seq = (select max(seq) from dim.budget_version)
    """,
    "replicas_counted": "update fact.workload set service = '' where service <> ''",
    "reservations_settled": """
        update fact.ledger set amount_gpu_us = amount_gpu_us + 1 where kind = 'void' and account = 'reserved'
    """,
    "rights": "delete from dim.member_version where member like '%team%'",
    "run_account": "update fact.run_closed set charged_gpu_us = charged_gpu_us + 1 where run_id = 1",
    "run_numbers": """
        update fact.decision set run = run + 1 where type = 'run.placed' and workload = (select min(workload) from
        fact.run_closed)
    """,
    "runs_closed_once": "insert into fact.decision select * from fact.decision where type = 'run.closed' limit 1",
    "services_sized": "update fact.resize set before = before + 1",
    "sibling_shares": "update dim.budget_version set share_ppm = share_ppm + 1 where budget = 'itp/cluster04'",
    "states_contiguous": "update fact.workload_state_closed set to_seq = to_seq + 1 where state = 'pending'",
    "states_match_runs": "delete from fact.workload_state_closed where state = 'placed'",
    "supply_overlap": """
        insert into dim.node_version select * replace (seq + 1 as seq, time_ms - 3600000 as time_ms) from dim.node_version
        where gpus > 0 qualify row_number() over (order by seq desc) = 1
    """,
    "tick_answered": "delete from raw.event_log where type = 'clock.tick' and seq = (select max(seq) from fact.cycle)",
    "work_within_time": """
        update fact.run_closed set useful_gpu_us = charged_gpu_us + unfunded_gpu_us + 1 where run_id = 1
    """,
    "victim_unprotected": "update fact.alloc_closed set payer = 'budget'",
}


@pytest.fixture(scope="module")
def rich() -> Iterator[Projection]:
    """A history in which all happens that the faults are about: the first of a few seeds that has it."""
    for seed in (67, *range(47, 67)):
        logs = simulated(seed, hours=24, nodes=4)
        projection = Projection()
        projection.ingest(logs.records, logs.batches[: len(logs.batches) // 2])
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        if all(projection.con.execute(f"select 1 from {what} limit 1").fetchone() for what in NEEDED):
            yield projection
            projection.close()
            return
        projection.close()
    pytest.fail("no seed gives a history with everything the faults need; raise the rates of trouble in history.py")


def test_every_check_has_a_fault_and_every_fault_a_check() -> None:
    assert FAULTS.keys() == audit.checks().keys()
    assert len(FAULTS) >= 20


@pytest.mark.parametrize("seed", [31])
def test_nothing_to_find_in_an_honest_history(seed: int) -> None:
    logs = simulated(seed, hours=24, nodes=4)
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        found = audit.audit(projection.con)

        assert [(finding.name, finding.rows[:2]) for finding in found.failed] == []
        assert len(found.findings) == len(audit.checks())
        assert found.as_of.seq == logs.batches[-1].input_seq
        assert report(projection.con)["conservation_error"] == 0


@pytest.mark.parametrize(("policy", "takes"), [("fifo", False), ("priority", True), ("fair_tree", False), ("drf", True)])
def test_nothing_to_find_under_a_baseline_and_certificates_are_judged_by_its_rule(policy: Policy, takes: bool) -> None:
    logs = simulated(8, hours=30, nodes=3, policy=policy)
    numbers = {"priority": "victim_priority", "drf": "victim_line_milli"}
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        con = projection.con
        honest = audit.audit(con).failed
        rules = con.execute("select distinct policy from fact.certificate").fetchall()
        paid = con.execute("select count(*) from fact.certificate where json_exists(numbers, ?)", [f"$.{numbers.get(policy)}"])
        victims = paid.fetchone()
        con.execute(
            "update fact.decision set body = json_merge_patch(body, ?) where type = 'run.preempted'",
            ['{"certificate": {"numbers": {"victim_priority": 9999999, "victim_line_milli": 0}}}'],
        )
        forged = audit.audit(con, "certificate_arithmetic").findings[0]

    assert [(finding.name, finding.rows[:2]) for finding in honest] == []
    assert rules == ([(policy,)] if takes else [])
    if takes:
        assert victims is not None
        assert victims[0] > 0
        assert not forged.holds


@pytest.mark.parametrize("name", sorted(audit.checks()))
def test_each_check_finds_its_fault(name: str, rich: Projection) -> None:
    con = rich.con
    con.execute("begin")
    try:
        for statement in FAULTS[name].split(";\n"):
            con.execute(statement)
        finding = audit.audit_at(con, queries.as_of(con), name).findings[0]
    finally:
        con.execute("rollback")

    assert not finding.holds, f"{name} is blind to its fault"
    assert finding.rows
    assert audit.audit(con, name).findings[0].holds


def test_an_unknown_check_is_refused_with_the_names_there_are(rich: Projection) -> None:
    with pytest.raises(QueryRefused, match="no check is called 'x'; there are: admitted_once, alloc_length"):
        audit.audit(rich.con, "x")
