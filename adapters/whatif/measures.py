"""What a world came to in the range: GPU time by budget and payer, starts, waits, preemptions, lost work, ends.

``Measures`` is shown the batches of a world, history's or a played one's, and reads decisions only, so both worlds are measured
by the same rule. A pure function of the core's state at the start and the batches. GPU time is net of refunds, as on a budget's
statement; what is held at an end of the range counts up to there. A budget that is in several pools has an account in each:
their GPU time is not the same. It must never look into the state of the core that decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from apportion.adapters.comparing.waits import kaplan_meier, quantile_of
from apportion.core import ledger
from apportion.core.decisions import (
    CycleBatch,
    FundingChanged,
    PoolBooks,
    RunClosed,
    RunPlaced,
    RunPreempted,
    WorkloadAdmitted,
    WorkloadClosed,
)
from apportion.core.events import replica_of
from apportion.core.state import schema
from apportion.core.state.copying import copy_of
from apportion.core.units import NEVER_MS, gpu_us

if TYPE_CHECKING:
    from apportion.core.engine import Core

PERCENTS = (50, 90)


class Spell(NamedTuple):
    """GPUs that a run of a budget held while one and the same paid. ``budget``: the name of its account."""

    budget: str
    funded: bool
    from_ms: int
    to_ms: int
    gpus_milli: int
    workload: str


@dataclass(slots=True)
class Life:
    """A workload in one world. ``first_ms`` and ``end_ms``: -1 = not within the range; ``submit_ms``: when it was admitted.

    ``budget`` is the name of the account in the pool where it waits.
    """

    budget: str
    gpus_milli: int
    submit_ms: int
    new: bool  # admitted in the range
    first_ms: int = -1
    end_ms: int = -1
    outcome: str = ""
    starts: int = 0
    preemptions: int = 0


class Wait(NamedTuple):
    """A wait that so many per cent do not exceed; ``open``: it is longer than this, the longest seen."""

    wait_ms: int
    open: bool


@dataclass(slots=True)
class Account:
    """A budget in a pool, in one world."""

    budget: str = ""
    pool: str = ""
    funded_gpu_us: int = 0
    unfunded_gpu_us: int = 0
    starts: int = 0
    preemptions: int = 0  # of its runs
    lost_gpu_us: int = 0  # work that must be done again
    jobs: int = 0  # admitted in the range
    started: int = 0  # of them
    ended: int = 0  # workloads that were over in the range
    succeeded: int = 0
    waits: tuple[Wait, ...] = ()  # of PERCENTS


@dataclass
class Measured:
    """One world's range."""

    from_ms: int
    to_ms: int
    accounts: dict[str, Account]
    total: Account
    lives: dict[str, Life]
    spells: list[Spell]
    supply_gpu_us: int = 0  # from the beginning to ``books_ms``, as the following
    idle_gpu_us: int = 0
    down_gpu_us: int = 0
    cycles: int = 0
    waited: list[tuple[int, bool]] = field(default_factory=list)  # (wait, still waiting), of all admitted
    books_ms: int = 0  # of the last cycle whose books were looked at


class _Held(NamedTuple):
    budget: str
    gpus_milli: int
    funded: bool
    since_ms: int


class Measures:
    """Shown every batch of the range; ``finish`` adds up.

    ``books_to_ms``: books of later cycles do not count, so that those of two worlds are of the same time.
    """

    def __init__(self, core: Core, to_ms: int, books_to_ms: int = NEVER_MS) -> None:
        self.from_ms, self.to_ms = core.time_ms, to_ms
        self._books_to_ms = books_to_ms
        self._several = core.state.pool.used > 1
        self._named: dict[str, tuple[str, str]] = {}  # name of an account -> budget, pool
        self._accounts: dict[str, Account] = {}
        self._lives: dict[str, Life] = {}
        self._held: dict[str, _Held] = {}
        self._spells: list[Spell] = []
        begun = copy_of(core.state)
        ledger.accrue(begun, core.time_ms)
        self._first: tuple[PoolBooks, ...] = ledger.books(begun)
        self._last, self._last_ms = self._first, self.from_ms
        self._cycles = 0
        state = core.state
        for name, row in state.workload.row_of.items():
            path, pools = state.budget_path(int(state.workload.budget[row])), state.pool.keys
            budget = self._name(path, pools[int(state.workload.pool[row])])
            ran = int(state.workload.run_no[row]) > 0
            life = Life(budget, int(state.workload.gpus_milli[row]), int(state.workload.submit_ms[row]), new=False)
            life.first_ms = self.from_ms if ran else -1
            self._lives[name] = life
            run = int(state.workload.run[row])
            if run >= 0 and int(state.run.state[run]) != schema.ENDED:
                funded = int(state.run.payer[run]) == schema.PAYER_BUDGET
                paying = self._name(path, pools[int(state.run.pool[run])])
                held = _Held(paying, int(state.run.gpus_milli[run]), funded, self.from_ms)
                self._held[state.run.keys[run]] = held

    def take(self, batch: CycleBatch) -> None:
        """Look at one batch."""
        self._cycles += 1
        at_ms = batch.time_ms
        if at_ms <= self._books_to_ms:
            self._last, self._last_ms = batch.books, at_ms
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                key, funded = f"{decision.workload}#{decision.run}", decision.payer == "budget"
                budget = self._name(decision.budget, decision.pool)
                self._held[key] = _Held(budget, decision.gpus_milli, funded, at_ms)
                self._of(budget).starts += 1
                life = self._lives.get(decision.workload)
                if life is None:  # a replica of a service
                    life = self._lives[decision.workload] = Life(budget, decision.gpus_milli, at_ms, new=False)
                life.starts += 1
                life.first_ms = at_ms if life.first_ms < 0 else life.first_ms
            elif isinstance(decision, FundingChanged):
                key = f"{decision.workload}#{decision.run}"
                held = self._end_spell(key, at_ms)
                if held is not None:
                    self._held[key] = held._replace(funded=decision.payer == "budget", since_ms=at_ms)
            elif isinstance(decision, RunClosed):
                self._closed(decision)
            elif isinstance(decision, RunPreempted):
                self._of(self._held[f"{decision.workload}#{decision.run}"].budget).preemptions += 1
                self._lives[decision.workload].preemptions += 1
            elif isinstance(decision, WorkloadAdmitted):
                self._lives[decision.workload] = Life(
                    self._name(decision.budget, decision.pool), decision.nodes * decision.milli_per_node, at_ms, new=True
                )
            elif isinstance(decision, WorkloadClosed) and decision.workload in self._lives:
                life = self._lives[decision.workload]
                life.end_ms, life.outcome = at_ms, decision.outcome
                account = self._of(life.budget)
                account.ended += 1
                account.succeeded += decision.outcome == "succeeded"

    def _name(self, budget: str, pool: str) -> str:
        """Return the name of a budget's account in a pool: the budget alone where there is but one pool."""
        name = f"{budget} in {pool}" if self._several else budget
        self._named[name] = budget, pool
        return name

    def _of(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(*self._named[name])
        return found

    def _end_spell(self, key: str, at_ms: int) -> _Held | None:
        held = self._held.pop(key, None)
        if held is not None and at_ms > held.since_ms:
            workload = key.rpartition("#")[0]
            self._spells.append(Spell(held.budget, held.funded, held.since_ms, at_ms, held.gpus_milli, workload))
        return held

    def _closed(self, closed: RunClosed) -> None:
        self._end_spell(f"{closed.workload}#{closed.run}", closed.end_ms)
        account = self._of(self._name(closed.budget, closed.pool))
        account.funded_gpu_us -= closed.refunded_gpu_us
        account.unfunded_gpu_us -= closed.unfunded_refunded_gpu_us
        account.lost_gpu_us += closed.lost_gpu_us

    def finish(self, to_ms: int | None = None) -> Measured:
        """Return what came of it, up to ``to_ms``."""
        self.to_ms = to_ms if to_ms is not None else self.to_ms
        for key in list(self._held):
            self._end_spell(key, self.to_ms)
        for spell in self._spells:
            account, amount = self._of(spell.budget), gpu_us(spell.gpus_milli, spell.to_ms - spell.from_ms)
            if spell.funded:
                account.funded_gpu_us += amount
            else:
                account.unfunded_gpu_us += amount
        waits: dict[str, list[tuple[int, bool]]] = {}
        for name, life in self._lives.items():
            if not life.new:
                continue
            account = self._of(life.budget)
            account.jobs += 1
            account.started += life.first_ms >= 0
            if life.first_ms >= 0:
                waits.setdefault(life.budget, []).append((life.first_ms - life.submit_ms, False))
            elif life.end_ms < 0 and ":" not in replica_of(name)[0]:
                waits.setdefault(life.budget, []).append((self.to_ms - life.submit_ms, True))
        for budget, found in waits.items():
            self._accounts[budget].waits = _quantiles(found)
        waited = [one for found in waits.values() for one in found]
        total = _sum(self._accounts.values())
        total.waits = _quantiles(waited)
        supply, idle, down = self._from_books()
        return Measured(
            self.from_ms, self.to_ms, dict(sorted(self._accounts.items())), total, self._lives, self._spells,
            supply, idle, down, self._cycles, waited, self._last_ms,
        )  # fmt: skip

    def _from_books(self) -> tuple[int, int, int]:
        before = {books.pool: books for books in self._first}
        grown = [(after, before.get(after.pool)) for after in self._last]
        return (
            sum(after.supply - (old.supply if old else 0) for after, old in grown),
            sum(after.idle - (old.idle if old else 0) for after, old in grown),
            sum(after.down - (old.down if old else 0) for after, old in grown),
        )


def _quantiles(waited: list[tuple[int, bool]]) -> tuple[Wait, ...]:
    ended = [wait_ms for wait_ms, is_open in waited if not is_open]
    still = [wait_ms for wait_ms, is_open in waited if is_open]
    found = kaplan_meier(ended, still)
    quantiles = [quantile_of(found, percent, max(still, default=0)) for percent in PERCENTS]
    return tuple(Wait(one.wait_ms, one.open) for one in quantiles)


def _sum(accounts: Iterable[Account]) -> Account:
    total = Account()
    for one in accounts:
        total.funded_gpu_us += one.funded_gpu_us
        total.unfunded_gpu_us += one.unfunded_gpu_us
        total.lost_gpu_us += one.lost_gpu_us
        total.starts += one.starts
        total.preemptions += one.preemptions
        total.jobs += one.jobs
        total.started += one.started
        total.ended += one.ended
        total.succeeded += one.succeeded
    return total
