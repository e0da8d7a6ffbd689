"""A budget's statement of a period, as a bank would print it: opening balance, each line, closing balance.

A pure function of the rows of the queries ``balance`` and ``statement``. It decides the running balance of each line and whether
the sums check: opening + credits - debits = closing, exact to the GPU-microsecond, where the two ends and the lines between
them come from different sums over the facts. A statement that does not add up is never returned. It must never round.

A budget that was granted GPU time has a *balance*; one that never was has only what it *used*, and its lines add to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.core.errors import ApportionError

Row = dict[str, Any]
MONEY = ("credit_gpu_us", "debit_gpu_us")


class DoesNotAddUp(ApportionError):
    """Opening, lines and closing of a statement contradict each other: a fault of the program or a damaged projection."""


@dataclass(frozen=True)
class Statement:
    """One budget in one pool over one period; ``lines`` have their running balance in ``balance_gpu_us``."""

    budget: str
    pool: str
    from_ms: int
    to_ms: int  # as asked, not included
    until_ms: int  # how far the data goes: to_ms, or before it
    metered: bool
    metered_ms: int | None  # when the balance began
    opening_gpu_us: int
    closing_gpu_us: int
    lines: list[Row] = field(default_factory=list)

    @property
    def word(self) -> str:
        """What the running column counts."""
        return "balance" if self.metered else "used"

    def total(self, name: str, *kinds: str) -> int:
        """Return the sum of a column, over all lines or those of some kinds."""
        return sum(int(line[name]) for line in self.lines if not kinds or line["kind"] in kinds)

    def parts(self) -> list[tuple[str, int]]:
        """Return what leads from opening to closing, signed, with a word each; what is nothing is left out but charges."""
        runs = ("run", "refund")
        if not self.metered:
            return [
                ("charged for runs", self.total("funded_gpu_us")),
                *([("refunded", -self.total("refunded_gpu_us"))] if self.total("refunded_gpu_us") else []),
            ]
        found: dict[str, int] = {}
        for line in self.lines:
            if line["kind"] not in runs:
                word = POSTINGS.get(line["kind"], str(line["kind"]))
                if line["kind"] == "transfer":
                    word = "transferred in" if line["credit_gpu_us"] else "transferred out"
                found[word] = found.get(word, 0) + line["credit_gpu_us"] - line["debit_gpu_us"]
        refunded = self.total("credit_gpu_us", *runs)
        return [
            *found.items(),
            ("charged for runs", -self.total("debit_gpu_us", *runs)),
            *([("refunded", refunded)] if refunded else []),
        ]

    def document(self) -> Row:
        """Return all of it as integers for JSON."""
        return {
            "budget": self.budget,
            "pool": self.pool,
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "until_ms": self.until_ms,
            "basis": self.word,
            "metered_ms": self.metered_ms,
            "opening_gpu_us": self.opening_gpu_us,
            "parts": [{"what": word, "gpu_us": amount} for word, amount in self.parts()],
            "closing_gpu_us": self.closing_gpu_us,
            "funded_gpu_us": self.total("funded_gpu_us"),
            "unfunded_gpu_us": self.total("unfunded_gpu_us"),
            "refunded_gpu_us": self.total("refunded_gpu_us"),
            "unfunded_refunded_gpu_us": self.total("unfunded_refunded_gpu_us"),
            "lines": self.lines,
        }

    def table(self) -> list[Row]:
        """Return the lines between an opening and a closing line, for CSV: each row with the balance after it."""
        empty = dict.fromkeys(self.lines[0] if self.lines else ("booked_ms", "kind", *MONEY, "balance_gpu_us"))
        where = {"pool": self.pool, "statement_of": self.budget}
        ends = [
            {**where, **empty, "kind": kind, "booked_ms": at_ms, "balance_gpu_us": amount}
            for kind, at_ms, amount in (
                ("opening", self.from_ms, self.opening_gpu_us), ("closing", self.until_ms, self.closing_gpu_us)
            )
        ]  # fmt: skip
        return [ends[0], *({**where, **line} for line in self.lines), ends[1]]


POSTINGS: dict[str, str] = {"grant": "granted", "withdrawal": "taken back", "lapse": "lapsed"}


def statement(budget: str, pool: str, period: tuple[int, int], edges: Sequence[Row], lines: Sequence[Row]) -> Statement:
    """Return the statement made of both queries' rows. Raises ``DoesNotAddUp``."""
    opening, closing = ({row["edge"]: row for row in edges}[name] for name in ("opening", "closing"))
    metered = bool(closing["metered"])
    kind = "balance_gpu_us" if metered else "used_gpu_us"
    running, shown = int(opening[kind]), []
    for line in lines:
        running += _change(line, metered=metered)
        shown.append({**line, "balance_gpu_us": running})
    made = Statement(
        budget, pool, period[0], period[1], int(closing["at_ms"]), metered, closing["metered_ms"] if metered else None,
        int(opening[kind]), int(closing[kind]), shown,
    )  # fmt: skip
    _check(made, opening, closing, running)
    return made


def _change(line: Row, *, metered: bool) -> int:
    """Return what a line does to the balance, or to what was used."""
    if metered:
        return int(line["credit_gpu_us"]) - int(line["debit_gpu_us"])
    return int(line["funded_gpu_us"]) - int(line["refunded_gpu_us"])


def _check(made: Statement, opening: Row, closing: Row, running: int) -> None:
    """Compare every sum with the difference of the two ends."""
    net = made.total("funded_gpu_us") - made.total("refunded_gpu_us")
    free = made.total("unfunded_gpu_us") - made.total("unfunded_refunded_gpu_us")
    sums = {
        made.word: (running, made.closing_gpu_us),
        "parts": (made.opening_gpu_us + sum(amount for _word, amount in made.parts()), made.closing_gpu_us),
        "funded time": (int(opening["used_gpu_us"]) + net, int(closing["used_gpu_us"])),
        "unfunded time": (int(opening["unfunded_gpu_us"]) + free, int(closing["unfunded_gpu_us"])),
    }
    wrong = [
        f"{name}: the lines lead to {led}, the facts to {told}" for name, (led, told) in sums.items() if led != told
    ]
    if wrong:
        raise DoesNotAddUp(
            f"the statement of {made.budget} in pool {made.pool} DOES NOT ADD UP, in GPU-microseconds: {'; '.join(wrong)}. "
            "It is not shown: run `apportion audit`, keep the log, and report it"
        )
