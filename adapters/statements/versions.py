"""Two versions of one bill: what a period was known to cost at an earlier moment, what it is known to cost now, and why.

A pure function of the rows of the queries ``bill``, asked for both moments over the same time, and ``corrections``, asked for what
was given back between them. It decides which lines differ and which decision made each difference; a difference that no decision
explains is a contradiction and is never shown. It must never round.

Why there are two: the log never writes the past anew. Every run ends, and every posting is made, in the time of its own record,
so what was charged for a period does not change after it. What changes is what comes back: GPU time that hardware or an operator
cost a run is given back when the run ends, by the pool's rule, also for time in a period that is over. A statement books it where
it was given; a bill counts it where it was charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apportion.core.errors import ApportionError

Row = dict[str, Any]
Key = tuple[str, int]
AMOUNTS = ("funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "unfunded_refunded_gpu_us", "cost_gpu_us")


class Unexplained(ApportionError):
    """Two versions of a bill differ, and no decision says why: a fault of the program or a damaged projection."""


@dataclass(frozen=True)
class Moment:
    """What was known when."""

    seq: int
    time_ms: int


@dataclass(frozen=True)
class Versions:
    """A budget's bill of one pool and one stretch of time, in two versions, and the lines that differ."""

    budget: str
    pool: str
    from_ms: int
    to_ms: int  # not included; never after what the earlier version knew
    then: Moment
    now: Moment
    totals_then: Row
    totals_now: Row
    lines: list[Row]  # of the runs that differ: both costs, and the decision

    def document(self) -> Row:
        """Return all of it for JSON."""
        return {
            "budget": self.budget, "pool": self.pool, "from_ms": self.from_ms, "to_ms": self.to_ms,
            "as_known": {"seq": self.then.seq, "time_ms": self.then.time_ms, **self.totals_then},
            "now": {"seq": self.now.seq, "time_ms": self.now.time_ms, **self.totals_now},
            "difference_gpu_us": self.totals_now["cost_gpu_us"] - self.totals_then["cost_gpu_us"],
            "lines": self.lines,
        }  # fmt: skip


def versions(
    budget: str, pool: str, span: tuple[int, int], moments: tuple[Moment, Moment], bills: tuple[Sequence[Row], Sequence[Row]],
    corrections: Sequence[Row],
) -> Versions:  # fmt: skip
    """Return both versions of a bill. Raises ``Unexplained``."""
    then, now = ({_key(row): row for row in rows} for rows in bills)
    decided = {_key(row): row for row in corrections}
    lines = []
    for key, row in now.items():
        before = then.get(key, dict.fromkeys(AMOUNTS, 0))
        if all(before[name] == row[name] for name in AMOUNTS):
            continue
        why = decided.get(key)
        if why is None or before["funded_gpu_us"] != row["funded_gpu_us"] or before["unfunded_gpu_us"] != row["unfunded_gpu_us"]:
            raise Unexplained(
                f"the bill of {budget} in pool {pool} differs in {key[0]} run {key[1]} between seq {moments[0].seq} and "
                f"{moments[1].seq}, and no decision says why; run `apportion audit`, keep the log, and report it"
            )
        lines.append(_line(row, before, why))
    gone = then.keys() - now.keys()
    if gone:
        raise Unexplained(f"{min(gone)} was on the bill of {budget} at seq {moments[0].seq} and is not now; run `apportion audit`")
    return Versions(budget, pool, *span, *moments, _totals(bills[0]), _totals(bills[1]), lines)


def _key(row: Row) -> Key:
    return str(row["workload"]), int(row["run"])


def _totals(rows: Sequence[Row]) -> Row:
    return {"runs": len(rows), **{name: sum(int(row[name]) for row in rows) for name in AMOUNTS}}


def _line(row: Row, before: Row, why: Row) -> Row:
    return {
        "workload": row["workload"], "run": row["run"], "budget": row["budget"], "user": row["user"],
        "cost_then_gpu_us": before["cost_gpu_us"], "cost_now_gpu_us": row["cost_gpu_us"],
        "given_back_gpu_us": row["refunded_gpu_us"] - before["refunded_gpu_us"],
        "unfunded_given_back_gpu_us": row["unfunded_refunded_gpu_us"] - before["unfunded_refunded_gpu_us"],
        "decided_ms": why["decided_ms"], "seq": why["seq"], "position": why["position"], "outcome": why["outcome"],
        "cause_seq": why["cause_seq"], "cause": why["cause"], "author": why["author"], "reason": why["reason"],
    }  # fmt: skip
