"""Entitlements that begin and end by themselves: a projection shows what is in force, who planned it and why."""

from __future__ import annotations

import random

from apportion.core.events import (
    BudgetClosed,
    BudgetSet,
    GrantScheduled,
    MemberGranted,
    NodeJoined,
    PolicyActivated,
    PoolDefined,
)
from apportion.projections import audit, queries
from apportion.projections.runner import Projection
from tests.projections.history import HOUR_MS, START_MS, job, opened

LINES = ("lab", "lab/a", "lab/b", "lab/c")


def test_shares_in_force_are_those_of_the_core_whenever_one_looks() -> None:
    choose = random.Random(5)
    story = opened(budgets=[("lab", 900_000)])
    shares: list[dict[str, tuple[int, bool]]] = []
    for _ in range(60):
        line = choose.choice(LINES)
        ahead, length = (choose.choice((0, 0, 1, 3, 7)) for _ in range(2))
        from_ms = story.now_ms + ahead * HOUR_MS if ahead else 0
        until_ms = max(from_ms, story.now_ms) + length * HOUR_MS if length else 0
        share = choose.choice((0, 100_000, 300_000, 900_000))
        if choose.random() < 0.1:
            story.say(BudgetClosed(pool="h100", budget=line))
        else:
            story.say(BudgetSet(pool="h100", budget=line, share_ppm=share, from_ms=from_ms, until_ms=until_ms))
        story.tick(after_ms=choose.choice((0, HOUR_MS // 2, HOUR_MS, 2 * HOUR_MS)))
        table = story.core.state.budget
        shares.append(
            {
                story.core.state.budget_path(row): (int(table.share_ppm[row]), bool(table.closed[row]))
                for row in range(1, table.used)
            }
        )

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        for batch, expected in zip(story.logs.batches, shares, strict=True):
            found = queries.run(projection.con, "budgets", seq=batch.input_seq).dicts()
            got = {row["budget"]: (row["share_ppm"], row["closed"]) for row in found}
            open_ = {path: said for path, said in expected.items() if not said[1]}
            assert {path: got[path] for path in open_} == open_
            assert {path for path, (_, closed) in got.items() if closed} == set(expected) - set(open_)
        assert audit.audit(projection.con).failed == []
    assert any(closed for said in shares for _, closed in said.values()), "something was closed at some time"


def test_who_planned_a_change_and_why_is_kept() -> None:
    story = opened(budgets=[("lab", 400_000)])
    seq = story.say(
        BudgetSet(
            pool="h100", budget="lab", share_ppm=600_000, from_ms=START_MS + HOUR_MS, until_ms=START_MS + 2 * HOUR_MS,
            reason="the deadline week",
        )
    )  # fmt: skip
    story.tick()

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        versions = [
            row for row in queries.run(projection.con, "budget", budget="lab").dicts() if row["section"] == "version"
        ]
        assert [
            (row["seq"], row["share_ppm"], row["from_ms"], row["until_ms"], row["principal"], row["reason"])
            for row in versions
        ][1:] == [(seq, 600_000, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS, "ops", "the deadline week")]


def test_what_the_calendar_brings_and_takes_is_in_the_ledger_with_its_author() -> None:
    story = opened(budgets=[("lab", 500_000), ("lab/a", 500_000)])
    hour_us = 3_600_000_000
    seq = story.say(
        GrantScheduled(
            pool="h100", budget="lab", gpu_us=100 * hour_us, period="monthly", carry="cap", carry_cap_ppm=250_000,
            reason="the year's allocation",
        )
    )  # fmt: skip
    story.tick()
    for _ in range(3):
        story.tick(after_ms=31 * 24 * HOUR_MS)

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        assert audit.audit(projection.con).failed == []
        line = next(row for row in queries.run(projection.con, "budgets").dicts() if row["budget"] == "lab")
        table, row = story.core.state.budget, story.core.state.budget.row_of["h100:lab"]
        assert line["left_gpu_us"] == table.granted_us[row] == 125 * hour_us
        assert (line["granted_gpu_us"], line["lapsed_gpu_us"]) == (400 * hour_us, 275 * hour_us)
        told = [row for row in queries.run(projection.con, "budget", budget="lab").dicts() if row["section"] != "version"]
        assert {(row["section"], row["principal"], row["reason"]) for row in told if row["section"] != "member"} == {
            ("grant", "ops", "the year's allocation"), ("lapse", "ops", "the year's allocation"),
            ("schedule", "ops", "the year's allocation"),
        }  # fmt: skip
        schedule = next(row for row in told if row["section"] == "schedule")
        assert (schedule["seq"], schedule["what"]) == (seq, "monthly, at most 25 % is carried over")
        assert sum(row["gpu_us"] for row in told if row["section"] in ("grant", "lapse")) == 125 * hour_us


def test_what_is_planned_is_shown_before_it_happens() -> None:
    story = opened(budgets=[("lab", 400_000)])
    for share, ahead, end, why in ((600_000, 1, 3, "deadline"), (100_000, 2, 0, "later"), (200_000, 5, 6, "never seen")):
        story.say(
            BudgetSet(
                pool="h100", budget="lab", share_ppm=share, from_ms=START_MS + ahead * HOUR_MS,
                until_ms=START_MS + end * HOUR_MS if end else 0, reason=why,
            )
        )  # fmt: skip
    story.say(BudgetSet(pool="h100", budget="lab", share_ppm=300_000, from_ms=START_MS + 4 * HOUR_MS, reason="last"))
    story.tick()
    story.tick(after_ms=HOUR_MS)

    def planned(seq: int) -> list[tuple[int, int, str]]:
        found = queries.run(projection.con, "budget", budget="lab", seq=seq).dicts()
        return [
            ((row["time_ms"] - START_MS) // HOUR_MS, row["share_ppm"], row["reason"])
            for row in found
            if row["section"] == "planned"
        ]

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        first, second = (batch.input_seq for batch in story.logs.batches)
        assert planned(first) == [(1, 600_000, "deadline"), (2, 100_000, "later"), (4, 300_000, "last")]
        assert planned(second) == [(2, 100_000, "later"), (4, 300_000, "last")]


def test_usage_over_pools_may_count_each_gpu_by_its_weight() -> None:
    story = opened(nodes=1, budgets=[("lab", 1_000_000)])
    story.say(PoolDefined(pool="a100", weight_milli=450))
    story.say(BudgetSet(pool="a100", budget="lab", share_ppm=1_000_000))
    story.say(NodeJoined(node="o1", pool="a100", gpus=8), "o1")
    story.say(job("w1", 8))
    story.say(job("w2", 8, pools=("a100",)))
    story.tick()
    story.tick(after_ms=HOUR_MS)
    seq = story.logs.batches[-1].input_seq
    story.say(PolicyActivated(pool="h100", weight_milli=2_000))
    story.tick()

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()

        def used(**params: object) -> int:
            (row,) = queries.run(projection.con, "usage", by=["budget"], **params).dicts()
            return int(row["funded_gpu_us"] + row["unfunded_gpu_us"])

        hour_us = 3_600_000_000
        assert used() == 16 * hour_us
        assert used(seq=seq, weighted=True) == 8 * hour_us + 8 * hour_us * 450 // 1_000
        assert used(weighted=True) == 16 * hour_us + 8 * hour_us * 450 // 1_000
        assert used(weighted=True, pool="a100") == 8 * hour_us * 450 // 1_000


def test_users_below_a_budget_are_counted_with_it() -> None:
    story = opened(nodes=1, budgets=[("lab", 500_000), ("lab/a", 500_000)])
    story.say(BudgetSet(pool="h100", budget="lab/a", share_ppm=500_000, users="weighted"))
    story.say(MemberGranted(budget="lab/a", member="bob", weight_milli=3_000))
    for number, who in enumerate(("ann", "bob", "ann", "bob")):
        story.say(job(f"w{number}", 2, budget="lab/a"), who)
    story.tick()
    story.tick(after_ms=HOUR_MS)

    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        assert audit.audit(projection.con).failed == []
        first = story.logs.batches[0].input_seq
        then = next(row for row in queries.run(projection.con, "budgets", seq=first).dicts() if row["budget"] == "lab/a")
        line = next(row for row in queries.run(projection.con, "budgets").dicts() if row["budget"] == "lab/a")
        assert then["running_milli"] == 8_000
        assert line["funded_gpu_us"] + line["unfunded_gpu_us"] == 8 * 3_600_000_000
        used = {row["user"]: row["funded_gpu_us"] for row in queries.run(projection.con, "usage", by=["user"]).dicts()}
        assert set(used) == {"ann", "bob"}
        assert queries.run(projection.con, "why", workload="w0").dicts()
        members = [row for row in queries.run(projection.con, "budget", budget="lab/a").dicts() if row["section"] == "member"]
        assert {row["member"] for row in members} == {"ann", "bob"}
