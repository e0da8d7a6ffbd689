"""One cycle told: what was known, what was decided, what changed by it, and whether it derives to the same bytes now.

A pure function of the two logs and of a kept state to begin from. The core is brought to the end of the cycle before, reads the
records that this cycle was decided on, and decides it once more: what comes out is compared with the stored bytes, so telling a
cycle proves it, given the state before, whose digest must be the stored one too. Neither log is written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from apportion.adapters.logs.moments import Decided, last_decided
from apportion.adapters.past import differences, replaying
from apportion.adapters.past.driving import OnProgress, StoredBatches
from apportion.adapters.seen.sight import Find
from apportion.core.decisions import CycleBatch, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, split_subject
from apportion.core.ports import DecisionLog, EventLog
from apportion.core.state.state import State

READ_EVENTS = 5_000
QUIET = "node.heartbeat"  # counted, not listed


class NoSuchCycle(ValueError):
    """No cycle has that number, or none was decided at or after that record."""


@dataclass(frozen=True)
class Told:
    """A cycle. ``difference`` is None when the stored batch is what the core derives."""

    batch: CycleBatch
    before: Decided | None  # the cycle before
    digest_before: str
    chain_before: str
    counts: dict[str, int]  # records since then, by type
    records: list[Record]  # of them, heartbeats left out
    stated: bool
    budgets: list[dict[str, Any]]  # that changed, with what they were before
    pools: list[dict[str, Any]]
    bytes: int
    difference: dict[str, Any] | None
    begun_seq: int
    begun_from: str
    last_cycle: int  # of the log


async def cycle_of(
    events: EventLog,
    decisions: DecisionLog,
    cycle: int | None,
    seq: int | None,
    find: Find | None = None,
    progress: OnProgress | None = None,
) -> Told:
    """Tell cycle ``cycle``, or the first one decided at or after record ``seq``; neither: the last one.

    Raises ``NoSuchCycle`` and what ``replaying.state_at`` raises.
    """
    last = await last_decided(decisions, lambda _each: True)
    if last is None:
        raise NoSuchCycle("no cycle has been decided yet")
    if seq is not None:
        before = await last_decided(decisions, lambda each: each.seq < seq)
        cycle = (before.cycle if before is not None else 0) + 1
        if cycle > last.cycle:
            raise NoSuchCycle(f"no cycle was decided at or after seq {seq:,}; the last one is {last.cycle:,} at seq {last.seq:,}")
    number = last.cycle if cycle is None else cycle
    if not 1 <= number <= last.cycle:
        raise NoSuchCycle(f"there is no cycle {number:,}; the log has cycles 1 to {last.cycle:,}")
    before = await last_decided(decisions, lambda each: each.cycle < number)
    from_seq = before.seq if before is not None else 0
    begin = await find(from_seq) if find is not None and from_seq else None
    core = await replaying.state_at(events, decisions, from_seq, begin.data if begin is not None else None, progress)
    stored = await StoredBatches(decisions, number - 1, from_seq + 1).next()
    if stored is None:
        raise NoSuchCycle(f"the batch of cycle {number:,} is not in the log any more")
    told = _Telling(core)
    await told.read(events, stored.input_seq)
    derived = core.decide()
    return Told(
        batch=decode_batch(stored.body),
        before=before,
        digest_before=told.digest,
        chain_before=told.chain,
        counts=dict(sorted(told.counts.items())),
        records=told.records,
        stated=bool(core.state.counters.stated),
        budgets=told.changed(),
        pools=told.pools_changed(),
        bytes=len(stored.body),
        difference=None if derived == stored.body else differences.describe(stored.body, derived),
        begun_seq=begin.seq if begin is not None else 0,
        begun_from=begin.source if begin is not None else "the first record",
        last_cycle=last.cycle,
    )


class _Telling:
    """Remembers what was before the cycle, and reads what the cycle was decided on."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.digest, self.chain = core.digest(), core.state.chain.hex()
        self.counts: Counter[str] = Counter()
        self.records: list[Record] = []
        self._budgets, self._pools = budget_books(core.state), pool_books(core.state)

    async def read(self, events: EventLog, tick_seq: int) -> None:
        """Read up to and including the tick. Raises ``ValueError`` when that is none."""
        while self.core.seq < tick_seq:
            for record in await events.read(self.core.seq, min(READ_EVENTS, tick_seq - self.core.seq)):
                kind = (split_subject(record.subject) or ("", "(no event)"))[1]
                self.counts[kind] += 1
                if kind != QUIET:
                    self.records.append(record)
                if self.core.fold(record) and record.seq != tick_seq:
                    raise NoSuchCycle(f"seq {record.seq:,} is a tick that no stored batch answers; `apportion verify` tells more")
        if not self.core.tick_pending:
            raise NoSuchCycle(f"seq {tick_seq:,} is no tick that the core accepts; `apportion verify` tells more")

    def changed(self) -> list[dict[str, Any]]:
        """Return the budgets whose accounts are no longer what they were."""
        return _changes(self._budgets, budget_books(self.core.state), ("pool", "budget"))

    def pools_changed(self) -> list[dict[str, Any]]:
        """Return the pools with what changed, all of them."""
        return _changes(self._pools, pool_books(self.core.state), ("pool",))


def _changes(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return per row what it is now, and under ``name_change`` by how much each amount changed."""
    rows = []
    for key, now in after.items():
        was = before.get(key, {})
        amounts = {name: value - was.get(name, 0) for name, value in now.items() if name not in names}
        if any(amounts.values()) or not was:
            rows.append({**now, **{f"change_{name}": value for name, value in amounts.items()}})
    return rows


def budget_books(state: State) -> dict[str, dict[str, Any]]:
    """Return per line of the tree its rates and accounts, exact up to the last tick."""
    table, found = state.budget, dict[str, dict[str, Any]]()
    for row in table.live_rows():
        if path := state.budget_path(row):
            found[table.keys[row]] = {
                "pool": state.pool.keys[int(table.pool[row])],
                "budget": path,
                "funded_milli": int(table.funded_milli[row]),
                "unfunded_milli": int(table.unfunded_milli[row]),
                "pending_milli": int(table.pending_milli[row]),
                "charged_gpu_us": int(table.charged_us[row]),
                "unfunded_gpu_us": int(table.unfunded_us[row]),
                "granted_gpu_us": int(table.granted_us[row]),
            }
    return dict(sorted(found.items()))


def pool_books(state: State) -> dict[str, dict[str, Any]]:
    """Return per pool its rates and accounts, exact up to the last tick."""
    pool, found = state.pool, dict[str, dict[str, Any]]()
    for row in pool.live_rows():
        root = int(pool.root[row])
        found[pool.keys[row]] = {
            "pool": pool.keys[row],
            "supply_milli": int(pool.supply_milli[row]),
            "down_milli": int(pool.down_milli[row]),
            "idle_milli": int(pool.idle_milli[row]),
            "unfunded_milli": int(pool.unfunded_milli[row]),
            "funded_milli": int(state.budget.funded_milli[root]),
            "pending_milli": int(state.budget.pending_milli[root]),
            "supply_gpu_us": int(pool.supply_us[row]),
            "down_gpu_us": int(pool.down_us[row]),
            "idle_gpu_us": int(pool.idle_us[row]),
            "unfunded_gpu_us": int(pool.unfunded_us[row]),
            "funded_gpu_us": int(state.budget.charged_us[root]),
        }
    return found
