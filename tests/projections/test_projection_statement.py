"""Statements of budgets: every sum checks, and every line is what a second account, kept in Python from the two logs, says.

The second account knows nothing of DuckDB: it folds the records with the core (for their times alone), takes grants and transfers
from accepted events, and intervals, payers and refunds from decisions.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from apportion.adapters.simulation.driver import Logs
from apportion.adapters.statements.statement import DoesNotAddUp, Statement, statement
from apportion.core import decisions as d
from apportion.core import events
from apportion.core.decisions import decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import decode_envelope, split_subject
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Story, job, opened, simulated

Key = tuple[str, int]
HOUR_US = 3_600_000_000


@dataclass
class Held:
    """One run as the decisions tell it."""

    budget: str
    gpus_milli: int
    parts: list[tuple[int, str]] = field(default_factory=list)  # (from, payer)
    end_ms: int | None = None
    refund: tuple[int, int, int, int] | None = None  # (time, cycle's seq, funded, unfunded)

    def time(self, lo: int, hi: int, payer: str) -> int:
        """Return its GPU time between two instants that this payer paid."""
        ends = [start for start, _payer in self.parts[1:]] + [hi if self.end_ms is None else self.end_ms]
        return sum(
            self.gpus_milli * max(0, min(end, hi) - max(start, lo))
            for (start, paid), end in zip(self.parts, ends, strict=True)
            if paid == payer
        )


@dataclass
class Account:
    """What the two logs say of all runs and all money, up to a cycle."""

    runs: dict[Key, Held] = field(default_factory=dict)
    money: list[tuple[int, int, str, str, int]] = field(default_factory=list)  # (time, seq, kind, budget, amount)
    core: Core = field(default_factory=Core.new)
    seq: int = 0

    def fold(self, logs: Logs, cycles: int) -> None:
        """Go on to the end of a cycle."""
        while self.core.cycle < cycles:
            record = logs.records[self.seq]
            self.seq += 1
            refused = self.core.state.counters.refused
            ticked = self.core.fold(record)
            parts = split_subject(record.subject)
            if (
                parts
                and parts[1] in ("budget.granted", "budget.withdrawn", "budget.transferred")
                and self.core.state.counters.refused == refused
            ):
                self._money(record.seq, parts[1], record.body)
            if ticked:
                stored = logs.batches[self.core.cycle]
                self.core.trust(stored.body, check=False)
                for decision in decode_batch(stored.body).decisions:
                    self._decision(decision)

    def _money(self, seq: int, kind: str, body: bytes) -> None:
        envelope = decode_envelope(body)
        event = events.decode_data(kind, envelope.v, envelope.data)
        at = (self.core.time_ms, seq)
        if isinstance(event, events.BudgetGranted):
            self.money.append((*at, "grant", event.budget, event.gpu_us))
        elif isinstance(event, events.BudgetWithdrawn):
            self.money.append((*at, "withdrawal", event.budget, -event.gpu_us))
        elif isinstance(event, events.BudgetTransferred):
            self.money.append((*at, "transfer", event.from_budget, -event.gpu_us))
            self.money.append((*at, "transfer", event.to_budget, event.gpu_us))

    def _decision(self, decision: Any) -> None:
        now_ms = self.core.time_ms
        if isinstance(decision, d.RunPlaced):
            held = Held(decision.budget, decision.gpus_milli, [(now_ms, decision.payer)])
            self.runs[decision.workload, decision.run] = held
        elif isinstance(decision, d.FundingChanged):
            self.runs[decision.workload, decision.run].parts.append((now_ms, decision.payer))
        elif isinstance(decision, d.RunClosed):
            held = self.runs[decision.workload, decision.run]
            held.end_ms = decision.end_ms
            back = (decision.refunded_gpu_us, decision.unfunded_refunded_gpu_us)
            if any(back):
                held.refund = (now_ms, self.core.seq, *back)

    def metered_from(self, budget: str) -> tuple[int, int] | None:
        found = [(at_ms, seq) for at_ms, seq, kind, path, _amount in self.money if path == budget and kind == "grant"]
        return found[0] if found else None

    def lines(self, budget: str, lo: int, hi: int) -> list[tuple[Any, ...]]:
        """Return what a statement must list, in no order: (what, run, funded, unfunded, refunds, credit, debit)."""
        end = min(hi, self.core.time_ms)
        began = self.metered_from(budget)
        found: list[tuple[Any, ...]] = []
        for at_ms, _seq, kind, path, amount in self.money:
            if path == budget and lo <= at_ms < hi:
                found.append((kind, None, 0, 0, 0, 0, max(amount, 0), max(-amount, 0)))
        for (workload, run), held in self.runs.items():
            if not (held.budget == budget or held.budget.startswith(budget + "/")):
                continue
            first, last = held.parts[0][0], held.end_ms if held.end_ms is not None else self.core.time_ms
            inside = first < end and last > lo
            refund = held.refund if held.refund and lo <= held.refund[0] < hi else None
            if not inside and not refund:
                continue
            counted = held.time(max(lo, began[0]), end, "budget") if began else 0
            credit = refund[2] if refund and began and refund[1] > began[1] else 0
            amounts = (held.time(lo, end, "budget"), held.time(lo, end, "unfunded")) if inside else (0, 0)
            back = (refund[2], refund[3]) if refund else (0, 0)
            found.append(("run" if inside else "refund", (workload, run), *amounts, *back, credit, counted))
        return found

    def balance(self, budget: str) -> tuple[bool, int, int]:
        """Return, from the core's own columns, whether it is metered, its balance and what it used."""
        table = self.core.state.budget
        row = table.row_of[f"h100:{budget}"]
        charged = int(table.charged_us[row])
        return bool(table.metered[row]), int(table.granted_us[row]) - charged, charged


def made(projection: Projection, budget: str, lo: int, hi: int, seq: int | None = None) -> Statement:
    asked = {"budget": budget, "pool": "h100", "from_ms": lo, "to_ms": hi}
    edges = queries.run(projection.con, "balance", seq=seq, **asked).dicts()
    lines = queries.run(projection.con, "statement", seq=seq, **asked).dicts()
    return statement(budget, "h100", (lo, hi), edges, lines)


def listed(one: Statement) -> Counter[tuple[Any, ...]]:
    names = (
        "funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "unfunded_refunded_gpu_us", "credit_gpu_us", "debit_gpu_us",
    )  # fmt: skip
    return Counter(
        (line["kind"], (line["workload"], line["run"]) if line["workload"] else None, *(line[name] for name in names))
        for line in one.lines
    )


@pytest.mark.parametrize(
    ("seed", "hours"), [(31, 36), *(pytest.param(s, 168, marks=pytest.mark.slow) for s in (35, 36))]
)
def test_a_statement_is_what_a_second_account_from_the_logs_says(seed: int, hours: int) -> None:
    logs = simulated(seed, hours=hours)
    choose = random.Random(seed)
    stops = sorted({*choose.sample(range(2, len(logs.batches)), 6), len(logs.batches)})
    account, checked, split, refunds = Account(), 0, 0, 0
    with Projection() as projection:
        for cycles in stops:
            projection.ingest(logs.records[: logs.batches[cycles - 1].input_seq], logs.batches[:cycles])
            projection.refresh()
            account.fold(logs, cycles)
            now_ms = account.core.time_ms
            paths = [account.core.state.budget_path(row) for row in range(account.core.state.budget.used)]
            for budget in (path for path in paths if path):
                lo, hi = sorted(choose.sample(range(START_MS, now_ms + 2 * HOUR_MS), 2))
                for first, last in ((lo, hi), (START_MS, now_ms + 1), (lo, now_ms + DAY_MS)):
                    if first > now_ms:
                        continue
                    one = made(projection, budget, first, last)
                    assert listed(one) == Counter(account.lines(budget, first, last)), (
                        f"{budget} {first}..{last} at {cycles}"
                    )
                    checked += len(one.lines)
                    split += sum(line["kind"] == "run" and line["start_ms"] < first for line in one.lines)
                    refunds += sum(line["refunded_gpu_us"] > 0 for line in one.lines)
                    if last > now_ms:
                        metered, balance, used = account.balance(budget)
                        assert (one.metered, one.closing_gpu_us) == (metered, balance if metered else used)
    assert checked > 500
    assert split > 20
    assert refunds > 0


@pytest.mark.parametrize("seed", [33])
def test_days_add_up_to_the_whole(seed: int) -> None:
    """The closing balance of a day is the opening balance of the next, and the lines of all days are those of the whole."""
    logs = simulated(seed, hours=72)
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        end_ms = START_MS + 3 * DAY_MS
        for row in queries.run(projection.con, "budgets").dicts():
            whole = made(projection, row["budget"], START_MS, end_ms)
            days = [
                made(projection, row["budget"], START_MS + n * DAY_MS, START_MS + (n + 1) * DAY_MS) for n in range(3)
            ]
            if all(day.metered == whole.metered for day in days):
                ends = [(day.opening_gpu_us, day.closing_gpu_us) for day in days]
                assert ends[0][0] == whole.opening_gpu_us
                assert [end for _start, end in ends[:-1]] == [start for start, _end in ends[1:]]
                assert ends[-1][1] == whole.closing_gpu_us
            for name in ("funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "credit_gpu_us", "debit_gpu_us"):
                assert sum(day.total(name) for day in days) == whole.total(name), (row["budget"], name)


def night() -> Story:
    """Return a story: 1 GPU from 22:00 to 02:00 on a budget that is granted 10 GPU-hours at 21:00 and gives 2 away at 23:00."""
    story = opened(nodes=1, gpus=8, budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000)))
    story.say(job("early", 2, budget="lab/a", min_runtime_ms=MINUTE_MS), "ann")
    grant = events.BudgetGranted(pool="h100", budget="lab/a", gpu_us=10 * HOUR_US, reason="for the night")
    lent = events.BudgetTransferred(
        pool="h100", from_budget="lab/a", to_budget="lab/b", gpu_us=2 * HOUR_US, reason="lent"
    )
    for minute in range(1, 26 * 60):
        story.now_ms = START_MS + minute * MINUTE_MS
        if minute == 21 * 60:
            story.say(grant)
            story.say(events.BudgetGranted(pool="h100", budget="lab/b", gpu_us=HOUR_US))
            story.say(events.RunFinished(workload="early", run=1, node="n1", outcome="succeeded"), "n1")
        if minute == 22 * 60:
            story.say(job("late", 1, budget="lab/a", name="night", min_runtime_ms=MINUTE_MS), "ann")
        if minute == 23 * 60:
            story.say(lent)
            story.say(events.BudgetWithdrawn(pool="h100", budget="lab/b", gpu_us=HOUR_US, reason="too much"))
        story.say(events.NodeHeartbeat(node="n1", beat=minute), "n1")
        for placed in story.tick().decisions:
            if isinstance(placed, d.RunPlaced):
                story.say(events.RunStarted(workload=placed.workload, run=placed.run, node="n1"), "n1")
    story.say(events.RunFinished(workload="late", run=1, node="n1", outcome="succeeded"), "n1", after_ms=MINUTE_MS)
    story.tick()
    return story


def test_a_night_by_hand() -> None:
    """Time before the first grant counts against nothing; a run over midnight is split; grants and transfers have their reasons."""
    story, hour = night(), HOUR_US
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        first = made(projection, "lab/a", START_MS, START_MS + DAY_MS)
        second = made(projection, "lab/a", START_MS + DAY_MS, START_MS + 2 * DAY_MS)

        assert [(line["kind"], line["credit_gpu_us"], line["debit_gpu_us"]) for line in first.lines] == [
            ("grant", 10 * hour, 0), ("run", 0, 0), ("transfer", 0, 2 * hour), ("run", 0, 2 * hour),
        ]  # fmt: skip
        assert first.lines[1]["funded_gpu_us"] == 2_000 * (21 * HOUR_MS - MINUTE_MS)
        assert (first.lines[2]["other"], first.lines[2]["reason"], first.lines[0]["reason"]) == (
            "lab/b",
            "lent",
            "for the night",
        )
        assert (first.lines[3]["name"], first.lines[3]["user"]) == ("night", "ann")
        assert [line["balance_gpu_us"] for line in first.lines] == [10 * hour, 10 * hour, 8 * hour, 6 * hour]
        assert (first.opening_gpu_us, first.closing_gpu_us) == (0, 6 * hour)
        assert first.parts() == [
            ("granted", 10 * hour),
            ("transferred out", -2 * hour),
            ("charged for runs", -2 * hour),
        ]
        assert (second.opening_gpu_us, second.closing_gpu_us) == (6 * hour, 4 * hour)
        assert [(line["kind"], line["debit_gpu_us"]) for line in second.lines] == [("run", 2 * hour)]
        assert second.until_ms == story.now_ms < second.to_ms
        above = made(projection, "lab", START_MS, START_MS + DAY_MS)
        assert (above.word, above.opening_gpu_us) == ("used", 0)
        assert above.closing_gpu_us == 2_000 * (21 * HOUR_MS - MINUTE_MS) + 2 * hour
        other = made(projection, "lab/b", START_MS, START_MS + DAY_MS)
        assert other.parts() == [("granted", hour), ("transferred in", 2 * hour), ("taken back", -hour), ("charged for runs", 0)]
        assert (other.closing_gpu_us, other.lines[-1]["reason"], other.lines[-1]["user"]) == (2 * hour, "too much", "ops")
        (line,) = (row for row in queries.run(projection.con, "budgets").dicts() if row["budget"] == "lab/b")
        assert (line["granted_gpu_us"], line["left_gpu_us"]) == (0, 2 * hour)


def test_a_statement_that_does_not_add_up_is_not_shown() -> None:
    story = night()
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        asked = {"budget": "lab/a", "pool": "h100", "from_ms": START_MS, "to_ms": START_MS + DAY_MS}
        edges = queries.run(projection.con, "balance", **asked).dicts()
        lines = queries.run(projection.con, "statement", **asked).dicts()
        span = (START_MS, START_MS + DAY_MS)

        assert statement("lab/a", "h100", span, edges, lines).lines
        for name in ("debit_gpu_us", "funded_gpu_us", "unfunded_gpu_us", "credit_gpu_us"):
            for wrong in (1, -1):
                false = [*lines[:-1], {**lines[-1], name: lines[-1][name] + wrong}]
                with pytest.raises(DoesNotAddUp, match="DOES NOT ADD UP"):
                    statement("lab/a", "h100", span, edges, false)
        with pytest.raises(DoesNotAddUp):
            statement("lab/a", "h100", span, edges, lines[1:])


def test_what_the_calendar_brings_and_takes_is_on_the_statement() -> None:
    """100 GPU-h a month, a quarter of it may be carried over: nothing is spent, so 75 lapse at each turn."""
    story = opened(budgets=[("lab", 500_000)])
    story.say(
        events.GrantScheduled(
            pool="h100", budget="lab", gpu_us=100 * HOUR_US, period="monthly", carry="cap", carry_cap_ppm=250_000,
            reason="the year's allocation",
        )
    )  # fmt: skip
    story.tick()
    for _ in range(2):
        story.tick(after_ms=31 * DAY_MS)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        january = made(projection, "lab", START_MS, START_MS + 31 * DAY_MS)
        february = made(projection, "lab", START_MS + 31 * DAY_MS, START_MS + 59 * DAY_MS)

        assert [(line["kind"], line["user"], line["reason"]) for line in january.lines] == [
            ("grant", "ops", "the year's allocation")
        ]
        assert sorted((line["kind"], line["credit_gpu_us"], line["debit_gpu_us"]) for line in february.lines) == [
            ("grant", 100 * HOUR_US, 0), ("lapse", 0, 75 * HOUR_US),
        ]  # fmt: skip
        assert dict(february.parts()) == {"granted": 100 * HOUR_US, "lapsed": -75 * HOUR_US, "charged for runs": 0}
        assert (january.closing_gpu_us, february.opening_gpu_us, february.closing_gpu_us) == (
            100 * HOUR_US, 100 * HOUR_US, 125 * HOUR_US,
        )  # fmt: skip
