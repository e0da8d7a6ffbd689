"""The budget tree and people's rights on it, as versions with author and reason; grants, by hand
or by the calendar, and transfers go to the ledger.

A pure function of the accepted events and the decisions. It must never compute a balance: balances are sums, made by queries.
"""

from __future__ import annotations

import duckdb

from apportion.core import decisions, events
from apportion.projections.ledger import Ledger
from apportion.projections.moment import Decided, Said
from apportion.projections.sheet import Sheet


class Budgets:
    """Rows about budgets and members."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.versions = Sheet(
            "dim.budget_version", "seq", "time_ms", "pool", "budget", "parent", "share_ppm", "closed", "from_ms", "until_ms",
            "principal", "reason",
        )  # fmt: skip
        self.members = Sheet(
            "dim.member_version", "seq", "time_ms", "budget", "member", "role", "held", "weight_milli", "principal", "reason"
        )
        self.schedules = Sheet(
            "dim.grant_schedule", "seq", "time_ms", "pool", "budget", "gpu_us", "period", "carry", "carry_cap_ppm", "from_ms",
            "until_ms", "principal", "reason",
        )  # fmt: skip
        self.share_ppm: dict[tuple[str, str], int] = {}

    def load(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take up the current shares."""
        found = con.execute(
            "select pool, budget, share_ppm from dim.budget_version "
            "qualify row_number() over (partition by pool, budget order by seq desc) = 1"
        ).fetchall()
        self.share_ppm = {(pool, budget): share for pool, budget, share in found}

    def _version(
        self, at: Said, event: events.BudgetSet | events.BudgetClosed, closed: bool, from_ms: int = 0, until_ms: int = 0
    ) -> None:
        parent = event.budget.rpartition("/")[0]
        share, begin_ms = self.share_ppm[event.pool, event.budget], max(from_ms, at.time_ms)
        self.versions.rows.append(
            (at.seq, at.time_ms, event.pool, event.budget, parent, share, closed, begin_ms, until_ms, at.principal, event.reason)
        )

    def budget_set(self, at: Said, event: events.BudgetSet) -> None:
        """A line exists, or has another share for a time; a closed one is open again."""
        self.share_ppm[event.pool, event.budget] = event.share_ppm
        self._version(at, event, False, event.from_ms, event.until_ms)

    def budget_closed(self, at: Said, event: events.BudgetClosed) -> None:
        """Nothing new is admitted on the line."""
        self._version(at, event, True)

    def budget_granted(self, at: Said, event: events.BudgetGranted) -> None:
        """GPU time is put into a budget."""
        self.ledger.post_event(
            at, "grant", event.pool, [("issued", event.budget, -event.gpu_us), ("budget", event.budget, event.gpu_us)]
        )

    def budget_withdrawn(self, at: Said, event: events.BudgetWithdrawn) -> None:
        """GPU time is taken back out of a budget."""
        self.ledger.post_event(
            at, "withdrawal", event.pool, [("budget", event.budget, -event.gpu_us), ("issued", event.budget, event.gpu_us)]
        )

    def grant_scheduled(self, at: Said, event: events.GrantScheduled) -> None:
        """GPU time will be put into a budget by the calendar."""
        self.schedules.rows.append(
            (
                at.seq, at.time_ms, event.pool, event.budget, event.gpu_us, event.period, event.carry, event.carry_cap_ppm,
                event.from_ms, event.until_ms, at.principal, event.reason,
            )
        )  # fmt: skip

    def grant_issued(self, at: Decided, decision: decisions.GrantIssued) -> None:
        """A period begins: what was not spent before lapses, what is new is put in."""
        lapsed, amount = decision.lapsed_gpu_us, decision.gpu_us
        self.ledger.post(
            at, decision.pool, "", 0,
            [
                ("lapse", "budget", decision.budget, -lapsed), ("lapse", "issued", decision.budget, lapsed),
                ("grant", "issued", decision.budget, -amount), ("grant", "budget", decision.budget, amount),
            ],
        )  # fmt: skip

    def budget_transferred(self, at: Said, event: events.BudgetTransferred) -> None:
        """GPU time moves between two budgets."""
        lines = [("budget", event.from_budget, -event.gpu_us), ("budget", event.to_budget, event.gpu_us)]
        self.ledger.post_event(at, "transfer", event.pool, lines)

    def member_granted(self, at: Said, event: events.MemberGranted) -> None:
        """Somebody holds a role."""
        self._member(at, event, True, event.weight_milli)

    def member_revoked(self, at: Said, event: events.MemberRevoked) -> None:
        """Somebody does not hold it any more."""
        self._member(at, event, False, 0)

    def _member(self, at: Said, event: events.MemberGranted | events.MemberRevoked, held: bool, weight_milli: int) -> None:
        row = (at.seq, at.time_ms, event.budget, event.member, event.role, held, weight_milli, at.principal, event.reason)
        self.members.rows.append(row)
