"""Two worlds of one range side by side: what each budget, and each job, got in either.

A pure function of what was measured in both, and of what the played world had to assume. ``document`` is everything, for
scripts; the text for people is ``report``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.history import History
from apportion.adapters.whatif.measures import PERCENTS, Account, Measured
from apportion.adapters.whatif.playing import Played
from apportion.core.units import gpu_us

MOVED_MS = 60_000  # what moved by less is not told of
FIGURES = (
    "funded_gpu_us",
    "unfunded_gpu_us",
    "starts",
    "preemptions",
    "lost_gpu_us",
    "jobs",
    "started",
    "ended",
    "succeeded",
)


class Moved(NamedTuple):
    """A job that started or ended at another time. -1: not within the range, in that world."""

    workload: str
    budget: str
    gpus_milli: int
    first_ms: tuple[int, int]  # history, what-if
    end_ms: tuple[int, int]
    weight: int  # milli-GPU x milliseconds by which its start, or else its end, moved


@dataclass
class Assumed:
    """What of the played world rests on needs that history does not know."""

    by_reason: dict[str, int]  # running, waiting, cancelled -> workloads
    gpu_us: int  # that they were given in the played world
    remade_runs: int
    refusals: dict[
        str, int
    ]  # reason -> events of history, or of the change, that the played world refused and history did not


@dataclass
class Difference:
    """``before`` is history, ``after`` the played world."""

    before: Measured
    after: Measured
    assumed: Assumed
    words: tuple[str, ...]
    moved: list[Moved]  # those that moved most first


def difference(history: History, before: Measured, after: Measured, played: Played, needs: Needs) -> Difference:
    """Put both worlds side by side; ``before`` is what was measured of the history."""
    moved = sorted(
        (found for name in before.lives if (found := _moved(name, before, after)) is not None),
        key=lambda one: (-one.weight, one.workload),
    )
    reasons: dict[str, int] = {}
    for reason in needs.assumed.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    amount = sum(gpu_us(s.gpus_milli, s.to_ms - s.from_ms) for s in after.spells if s.workload in needs.assumed)
    refused: dict[str, int] = {}
    for refusal in played.refusals:
        refused[refusal.reason] = refused.get(refusal.reason, 0) + 1
    more = {reason: count - history.refused.get(reason, 0) for reason, count in refused.items()}
    more = {reason: count for reason, count in more.items() if count > 0}
    return Difference(before, after, Assumed(reasons, amount, played.world.remade_runs, more), played.words, moved)


def _moved(name: str, before: Measured, after: Measured) -> Moved | None:
    was, now = before.lives.get(name), after.lives.get(name)
    if was is None or now is None:
        return None  # that it is not there, or is, is the change itself
    first, end = (was.first_ms, now.first_ms), (was.end_ms, now.end_ms)
    shift_ms = _shift_ms(first, before.to_ms) or _shift_ms(end, before.to_ms)
    if not shift_ms:
        return None
    return Moved(name, now.budget, now.gpus_milli, first, end, now.gpus_milli * shift_ms)


def _shift_ms(pair: tuple[int, int], last_ms: int) -> int:
    """Return by how much an instant moved, 0 for less than ``MOVED_MS``; what did not happen counts as the end of the range."""
    was_ms, now_ms = (at_ms if at_ms >= 0 else last_ms for at_ms in pair)
    return abs(now_ms - was_ms) if abs(now_ms - was_ms) >= MOVED_MS or (pair[0] < 0) != (pair[1] < 0) else 0


def budgets_of(found: Difference) -> list[tuple[str, Account, Account]]:
    """Return every budget, in each pool, that asked for or got anything in either world, with its accounts in both."""
    names = sorted({*found.before.accounts, *found.after.accounts})
    none = Account()
    return [(name, found.before.accounts.get(name, none), found.after.accounts.get(name, none)) for name in names]


def document(found: Difference) -> dict[str, Any]:
    """Return everything measured."""
    assumed = found.assumed
    return {
        "from_ms": found.before.from_ms,
        "to_ms": found.before.to_ms,
        "change": list(found.words),
        "total": _both(found.before.total, found.after.total),
        "gpu_us": {
            side: {"supply": one.supply_gpu_us, "idle": one.idle_gpu_us, "down": one.down_gpu_us}
            for side, one in (("history", found.before), ("whatif", found.after))
        },
        "budgets": [
            {"budget": was.budget or now.budget, "pool": was.pool or now.pool, **_both(was, now)}
            for _name, was, now in budgets_of(found)
        ],
        "jobs_moved": len(found.moved),
        "moved": [
            {
                "workload": one.workload, "budget": one.budget, "gpus_milli": one.gpus_milli,
                **{f"{name}_ms": {"history": _known(pair[0]), "whatif": _known(pair[1])}
                   for name, pair in (("start", one.first_ms), ("end", one.end_ms))},
            }
            for one in found.moved[:100]
        ],
        "assumed": {
            "censored": assumed.by_reason, "censored_gpu_us": assumed.gpu_us, "remade_runs": assumed.remade_runs,
            "refusals": assumed.refusals,
        },
    }  # fmt: skip


def _known(instant_ms: int) -> int | None:
    return None if instant_ms < 0 else instant_ms


def _both(was: Account, now: Account) -> dict[str, Any]:
    return {"history": account_document(was), "whatif": account_document(now)}


def account_document(account: Account) -> dict[str, Any]:
    """Return a budget's figures in one world."""
    found: dict[str, Any] = {name: getattr(account, name) for name in FIGURES}
    for percent, wait in zip(PERCENTS, account.waits, strict=False):
        found[f"wait_p{percent}_ms"] = wait.wait_ms
        found[f"wait_p{percent}_open"] = wait.open
    return found
