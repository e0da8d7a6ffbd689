"""The double-entry ledger: every movement of GPU time as lines that sum to zero within their transaction.

Accounts, per pool and budget: ``issued`` (where grants come from), ``budget`` (what it may spend), ``reserved`` (promised to
runs inside their protected time), ``used`` (spent), and for time nobody pays ``pool_time`` and ``unfunded``. Time is charged
when a run's payer changes or the run ends; what is still running is accrued by the queries.

A pure function of what it is told. Zero amounts make no line.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.projections.moment import Decided, Said
from apportion.projections.sheet import Sheet

Line = tuple[str, str, str, int]  # kind, account, budget, amount


class Ledger:
    """Rows of ``fact.ledger``."""

    def __init__(self) -> None:
        self.lines = Sheet(
            "fact.ledger", "seq", "position", "line", "time_ms", "kind", "pool", "budget", "account", "amount_gpu_us",
            "workload", "run",
        )  # fmt: skip

    def post_event(self, at: Said, kind: str, pool: str, lines: Sequence[tuple[str, str, int]]) -> None:
        """Post the transaction of an input event: lines of (account, budget, amount)."""
        for number, (account, budget, amount) in enumerate(lines):
            self.lines.rows.append((at.seq, 0, number, at.time_ms, kind, pool, budget, account, amount, "", 0))

    def post(self, at: Decided, pool: str, workload: str, run: int, lines: Sequence[Line]) -> None:
        """Post the transaction of a decision about a run."""
        number = 0
        for kind, account, budget, amount in lines:
            if amount:
                row = (at.seq, at.position, number, at.time_ms, kind, pool, budget, account, amount, workload, run)
                self.lines.rows.append(row)
                number += 1


def charge(budget: str, amount: int, from_reserved: int) -> list[Line]:
    """Return the lines that charge ``amount`` to a budget, ``from_reserved`` of it out of its reservation."""
    return [
        ("charge", "reserved", budget, -from_reserved),
        ("charge", "budget", budget, -(amount - from_reserved)),
        ("charge", "used", budget, amount),
    ]


def unfunded(budget: str, amount: int) -> list[Line]:
    """Return the lines for ``amount`` that a budget's run used and nobody paid."""
    return [("unfunded", "pool_time", budget, -amount), ("unfunded", "unfunded", budget, amount)]


def reserve(budget: str, amount: int) -> list[Line]:
    """Return the lines that set ``amount`` aside."""
    return [("reserve", "budget", budget, -amount), ("reserve", "reserved", budget, amount)]


def void(budget: str, amount: int) -> list[Line]:
    """Return the lines that give an unused reservation back."""
    return [("void", "reserved", budget, -amount), ("void", "budget", budget, amount)]


def refund(budget: str, funded: int, not_funded: int) -> list[Line]:
    """Return the lines that give back time which hardware lost."""
    return [
        ("refund", "used", budget, -funded),
        ("refund", "budget", budget, funded),
        ("refund", "unfunded", budget, -not_funded),
        ("refund", "pool_time", budget, not_funded),
    ]
