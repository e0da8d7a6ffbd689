"""The smallest change of each kind that would start a job now, found by trying: never by reasoning about what would happen.

A pure function of a ``Moment``. Each kind is a family of edits with a size; the least size at which the job really starts is sought
by halving, and what is returned was tried (``trying``). Kinds come in the order of what they cost the one who asks. Who applies one
meets the same core: a test does so for every cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from apportion.adapters.explaining.asked import submission_of
from apportion.adapters.explaining.causes import Numbers, ahead_of, own_balance_us
from apportion.adapters.explaining.holders import would_do
from apportion.adapters.explaining.moment import Moment
from apportion.adapters.explaining.trying import TRIALS_MAX, Edit, Outcome, OutOfTrials, Trials, least
from apportion.core.events import (
    BudgetGranted,
    BudgetSet,
    NodeUncordoned,
    RunFinished,
    WorkloadCancelled,
    WorkloadReprioritized,
    WorkloadSubmitted,
)
from apportion.core.policy.funding import fundable
from apportion.core.reasons import Funding
from apportion.core.state import schema
from apportion.core.state.holdings import runs_on_node
from apportion.core.units import GPU_US_PER_GPU_HOUR, MAX_PRIORITY, MILLI, MS_PER_DAY, PPM, apportion

KINDS = ("again", "gpus", "shape", "pool", "priority", "share", "grant", "min_runtime", "expected_runtime", "node", "hold", "holds")
ANEW = ("gpus", "shape", "pool", "min_runtime", "expected_runtime")  # by being submitted anew
SHARE_STEP_PPM = 1_000
HOLDERS_SHOWN = 3
RUNTIME_MAX_MS = 30 * MS_PER_DAY
MINUTE_MS = 60_000
HOLDS_MAX = 24  # runs that together may have to end
NODES_MAX, RUNS_MAX, GRANT_HOURS_MAX = 6, 10, 1 << 20


@dataclass(frozen=True)
class Change:
    """A change that starts the job: the events that make it, who may say them, and what came of it when it was tried."""

    kind: str  # one of KINDS
    edits: tuple[Edit, ...]
    job: str  # how the job is called then: another one where it is submitted anew
    numbers: Numbers
    outcome: Outcome
    asks: WorkloadSubmitted | None = None  # what is then asked for, where it is submitted anew


def smallest_changes(moment: Moment, workload: str, most: int = TRIALS_MAX) -> tuple[list[Change], int]:
    """Return the least change of each kind that starts a waiting workload, and how many cycles that took."""
    search = Search(moment, workload, most)
    return search.found(), search.trials.count


class Search:
    """The kinds, one method each."""

    def __init__(self, moment: Moment, workload: str, most: int = TRIALS_MAX) -> None:
        self.trials = Trials(moment, workload, most)
        self.moment, self.workload = moment, workload
        self.state = moment.core.state  # before the tick
        self.row = self.state.workload.row_of.get(workload, -1)
        after = moment.cycle.state.workload
        waits = self.row >= 0 and int(after.state[after.row_of[workload]]) == schema.PENDING if workload in after.row_of else False
        self.waits = waits and not self.state.workload.cancel_seq[self.row]
        if self.waits:
            self.name = self._free_name()
            self.owner = self.state.principal.keys[int(self.state.workload.submitter[self.row])]
            self.asks = submission_of(self.state, self.row, self.name)

    def found(self) -> list[Change]:
        """Return one change of each kind that has one; nothing for who does not wait in the queue."""
        changes: list[Change] = []
        try:
            for kind in KINDS if self.waits else ():
                if kind in ANEW and changes and changes[0].kind == "again":
                    continue  # what the same does, submitted anew, is not the doing of what else is changed then
                if kind == "holds" and changes and changes[-1].kind == "hold":
                    continue  # one is enough
                change = getattr(self, f"by_{kind}")()
                if change is not None:
                    changes.append(change)
        except OutOfTrials:
            pass
        return changes

    # -- submitted anew ------------------------------------------------------------------------------------------------

    def _anew(self, **fields: object) -> tuple[tuple[Edit, ...], WorkloadSubmitted]:
        asks = msgspec.structs.replace(self.asks, **fields)
        return ((self.owner, WorkloadCancelled(workload=self.workload)), (self.owner, asks)), asks

    def _least_anew(
        self, kind: str, values: Sequence[int], fields: Callable[[int], dict[str, object]], number: str
    ) -> Change | None:
        """Return the first of ``values`` with which it starts when it is submitted anew."""
        if self.state.workload.service[self.row]:
            return None  # what its service asks for is not its own

        def tried(value: int) -> bool:
            return self.trials.works(self._anew(**fields(value))[0], self.name)

        value = least(values, tried)
        return None if value is None else self._change_anew(kind, fields(value), {number: value})

    def _change_anew(self, kind: str, fields: dict[str, object], numbers: Numbers) -> Change | None:
        edits, asks = self._anew(**fields)
        outcome = self.trials.outcome(edits, self.name)
        return None if outcome is None else Change(kind, edits, self.name, numbers, outcome, asks)

    def by_again(self) -> Change | None:
        """Ask for the same anew: what waits after failures starts at once then."""
        return None if self.state.workload.service[self.row] else self._change_anew("again", {}, {})

    def by_gpus(self) -> Change | None:
        """Ask for fewer GPUs: the most with which it starts."""
        asks = self.asks
        each = asks.gpus_milli // max(1, asks.nodes)
        if asks.nodes > 1:
            counts = [nodes for nodes in range(asks.nodes - 1, 0, -1) if not asks.block or not nodes & (nodes - 1)]
            sizes = {nodes * each: nodes for nodes in counts}
            sizes |= {gpus * MILLI: 1 for gpus in range(each // MILLI - 1, 0, -1) if not asks.block or not gpus & (gpus - 1)}
        else:
            nodes = 0 if asks.loose else 1
            whole = range(-(-asks.gpus_milli // MILLI) - 1, 0, -1)
            sizes = {gpus * MILLI: nodes for gpus in whole if not asks.block or not gpus & (gpus - 1)}
            parts = () if asks.loose or asks.exclusive else (500, 250)
            sizes |= {part: nodes for part in parts if part < asks.gpus_milli}
        return self._least_anew("gpus", list(sizes), lambda milli: {"gpus_milli": milli, "nodes": sizes[milli]}, "gpus_milli")

    def by_shape(self) -> Change | None:
        """Ask for the same GPUs with one wish less, or spread wider: the first that starts, in that order."""
        if self.state.workload.service[self.row]:
            return None
        for what, fields in self._shapes():
            change = self._change_anew("shape", fields, {"what": what})
            if change is not None:
                return change
        return None

    def _shapes(self) -> Iterator[tuple[str, dict[str, object]]]:
        asks = self.asks
        lifted: dict[str, tuple[bool, dict[str, object]]] = {
            "without --exclusive": (asks.exclusive, {"exclusive": False}),
            f"--near {asks.within} instead of --within": (asks.within is not None, {"within": None, "near": asks.within}),
            "without --within": (asks.within is not None, {"within": None}),
            "without --apart": (asks.apart is not None, {"apart": None, "apart_level": None}),
            "without --block": (asks.block, {"block": False}),
            "without --cpu": (asks.cpu_milli > 0, {"cpu_milli": 0}),
            "without --memory": (asks.memory_mib > 0, {"memory_mib": 0}),
            "without --gpu-memory": (asks.gpu_memory_mib > 0, {"gpu_memory_mib": 0}),
            "without --label": (bool(asks.labels), {"labels": {}}),
        }
        yield from ((what, fields) for what, (asked, fields) in lifted.items() if asked)
        gpus = asks.gpus_milli // MILLI
        plain = not (asks.loose or asks.exclusive or asks.block)
        if plain and gpus > 1 and asks.gpus_milli % MILLI == 0:
            wider = [nodes for nodes in range(max(1, asks.nodes) + 1, gpus + 1) if gpus % nodes == 0]
            for nodes in wider[:4]:
                yield f"over {nodes} nodes", {"nodes": nodes}
            yield "--loose", {"nodes": 0, "loose": True}

    def by_pool(self) -> Change | None:
        """Accept another pool, in which its budget has a share: the first that starts it."""
        if self.state.workload.service[self.row]:
            return None
        for pool in self.state.pool.keys:
            if pool and pool not in self.asks.pools:
                change = self._change_anew("pool", {"pools": (*self.asks.pools, pool)}, {"pool": pool})
                if change is not None:
                    return change
        return None

    def by_min_runtime(self) -> Change | None:
        """Be protected for less time: the pool's quantum where it asks for more, else not at all; on idle cycles: for a quantum."""
        mine, pool = self.asks.min_runtime_ms or 0, int(self.state.workload.pool[self.row])
        quantum_ms = int(self.state.pool.quantum_ms[pool])
        values = [ms for ms in (quantum_ms, 0) if ms < mine] if mine else [quantum_ms]
        return self._least_anew("min_runtime", values, lambda ms: {"min_runtime_ms": ms}, "min_runtime_ms")

    def by_expected_runtime(self) -> Change | None:
        """State how long it runs at most, or less than it does: the most with which it starts."""
        most_ms = min(self.asks.expected_runtime_ms or RUNTIME_MAX_MS, RUNTIME_MAX_MS) - 1
        values = range(most_ms // MINUTE_MS, 0, -1)
        return self._least_anew(
            "expected_runtime", values, lambda minutes: {"expected_runtime_ms": minutes * MINUTE_MS}, "minutes"
        )

    # -- of what others say --------------------------------------------------------------------------------------------

    def _change(self, kind: str, edits: tuple[Edit, ...], numbers: Numbers) -> Change | None:
        outcome = self.trials.outcome(edits)
        return None if outcome is None else Change(kind, edits, self.workload, numbers, outcome)

    def _least(
        self, kind: str, values: Sequence[int], edits: Callable[[int], tuple[Edit, ...]], numbers: Callable[[int], Numbers]
    ) -> Change | None:
        value = least(values, lambda value: self.trials.works(edits(value)))
        return None if value is None else self._change(kind, edits(value), numbers(value))

    def by_priority(self) -> Change | None:
        """Go before others of its budget: the lowest priority that does."""
        state = self.moment.cycle.state
        if self.state.workload.service[self.row]:
            return None
        ahead = ahead_of(state, state.workload.row_of[self.workload])
        if not len(ahead):
            return None
        mine = int(self.state.workload.priority[self.row])
        levels = [level for level in (np.unique(state.workload.priority[ahead]) + 1).tolist() if mine < level <= MAX_PRIORITY]
        return self._least(
            "priority", levels,
            lambda level: ((self.owner, WorkloadReprioritized(workload=self.workload, priority=level)),),
            lambda level: {"priority": level, "before": mine},
        )  # fmt: skip

    def _unfunded(self, why: Funding) -> int:
        """Return the budget line of a workload that nobody would pay for, for that reason; -1 for all others."""
        cycle = self.moment.cycle
        row = cycle.state.workload.row_of[self.workload]
        return int(cycle.state.workload.budget[row]) if fundable(cycle.state, cycle.shares, row) == (False, why) else -1

    def by_share(self) -> Change | None:
        """Give its budget a larger share of what is above it: of what is given to nobody, then of its siblings', in proportion."""
        line, budget = self._unfunded(Funding.ABOVE_ALLOWANCE), self.state.budget
        if line < 0:
            return None
        line = int(budget.parent[line]) if budget.user[line] else line
        parent, pool = int(budget.parent[line]), self.state.pool.keys[int(budget.pool[line])]
        if parent < 0:
            return None
        beside = [row for row in np.flatnonzero(budget.column("parent") == parent).tolist() if row != line and not budget.user[row]]
        mine = int(budget.share_ppm[line])
        theirs = [int(budget.share_ppm[row]) for row in beside]
        spare = max(0, PPM - mine - sum(theirs))

        def edits(ppm: int) -> tuple[Edit, ...]:
            left = apportion(min(sum(theirs), PPM - ppm), theirs) if sum(theirs) else []
            shares = [(row, after) for row, before, after in zip(beside, theirs, left, strict=False) if after < before]
            return tuple(
                (self.trials.operator, BudgetSet(pool=pool, budget=self.state.budget_path(row), share_ppm=share))
                for row, share in [*shares, (line, ppm)]
            )

        def numbers(ppm: int) -> Numbers:
            told: Numbers = {"budget": self.state.budget_path(line), "before_ppm": mine, "share_ppm": ppm}
            taken = ppm - mine - spare
            return told if taken <= 0 else told | {"taken_ppm": taken, "siblings": len(edits(ppm)) - 1}

        values = range(mine + SHARE_STEP_PPM, PPM + 1, SHARE_STEP_PPM)
        return self._least("share", values, edits, numbers)

    def by_grant(self) -> Change | None:
        """Put GPU time into the budget that has too little of it: the fewest whole GPU-hours."""
        line, budget = self._unfunded(Funding.BALANCE_SPENT), self.state.budget
        if line < 0:
            return None
        cycle = self.moment.cycle
        needs_us = max(1, int(cycle.state.workload.gpus_milli[self.row]) * int(cycle.state.workload.min_runtime_ms[self.row]))
        poorest, missing_us = -1, 0
        while line >= 0:  # all lines from its own up must be able to promise it; one grant can help where one cannot
            left_us = own_balance_us(cycle, line)
            if left_us is not None and left_us < needs_us:
                poorest, missing_us = line, needs_us - left_us
            line = int(budget.parent[line])
        if poorest < 0:
            return None
        hours = min(2 * missing_us // GPU_US_PER_GPU_HOUR + 2, GRANT_HOURS_MAX)
        pool, path = self.state.pool.keys[int(budget.pool[poorest])], self.state.budget_path(poorest)
        if not path:
            return None
        return self._least(
            "grant", range(1, hours + 1),
            lambda hours: ((self.trials.operator, BudgetGranted(pool=pool, budget=path, gpu_us=hours * GPU_US_PER_GPU_HOUR)),),
            lambda hours: {"budget": path, "grant_gpu_us": hours * GPU_US_PER_GPU_HOUR, "hours": hours},
        )  # fmt: skip

    def by_node(self) -> Change | None:
        """Take one node back into service: the first that would do, the largest first."""
        node, pool = self.state.node, int(self.state.workload.pool[self.row])
        closed = (node.column("cordoned") > 0) | (node.column("drain_set_ms") > 0) | (node.column("suspended") > 0)
        rows = np.flatnonzero(closed & (node.column("pool") == pool) & (node.column("gpus") > 0) & (node.column("silent") == 0))
        for row in sorted(rows.tolist(), key=lambda row: (-int(node.gpus[row]), row))[:NODES_MAX]:
            name = node.keys[row]
            change = self._change("node", ((self.trials.operator, NodeUncordoned(node=name)),), {"node": name})
            if change is not None:
                return change
        return None

    def by_hold(self) -> Change | None:
        """Let one run of somebody end: whoever does no work first, then unfunded ones, the smallest first."""
        run, table, pool = self.state.run, self.state.workload, int(self.state.workload.pool[self.row])
        missing = int(table.gpus_milli[self.row]) - int(self.moment.cycle.state.pool.idle_milli[pool])
        active = (run.column("state") == schema.PLACED) | (run.column("state") == schema.STARTED)
        rows = np.flatnonzero(active & (run.column("pool") == pool) & (run.column("gpus_milli") >= missing))
        for row in self._who_may_end_first(rows)[:RUNS_MAX]:
            numbers: Numbers = {
                "holder": table.keys[int(run.workload[row])], "run": int(run.run_no[row]),
                "budget": self.state.budget_path(int(run.budget[row])),
                "gpus_milli": int(run.gpus_milli[row]),
            }  # fmt: skip
            if idle_ms := int(run.idle_since_ms[row]):
                numbers["idle_since_ms"] = idle_ms
            change = self._change("hold", (self._ended(row),), numbers)
            if change is not None:
                return change
        return None

    def by_holds(self) -> Change | None:
        """Let several runs end on the nodes that would do, where one is not enough: the fewest in that order, and of those no
        one who is not needed.
        """
        cycle, run = self.moment.cycle, self.state.run
        _start_ms, nodes = would_do(cycle, cycle.state.workload.row_of[self.workload])
        there = dict.fromkeys(row for node in nodes for row in runs_on_node(self.state, node))
        active = [row for row in there if int(run.state[row]) in (schema.PLACED, schema.STARTED)]
        rows = self._who_may_end_first(np.array(active, dtype=np.int64))[:HOLDS_MAX]

        def edits(chosen: Sequence[int]) -> tuple[Edit, ...]:
            return tuple(self._ended(row) for row in chosen)

        count = least(range(2, len(rows) + 1), lambda count: self.trials.works(edits(rows[:count])))
        if count is None:
            return None
        chosen = rows[:count]
        for row in rows[: count - 1]:
            fewer = [other for other in chosen if other != row]
            if len(fewer) > 1 and self.trials.works(edits(fewer)):
                chosen = fewer
        names = [self.state.workload.keys[int(run.workload[row])] for row in chosen]
        more = f" and {len(names) - HOLDERS_SHOWN} more" if len(names) > HOLDERS_SHOWN else ""
        numbers: Numbers = {
            "count": len(chosen), "holders": ", ".join(names[:HOLDERS_SHOWN]) + more,
            "gpus_milli": int(run.gpus_milli[np.array(chosen)].sum()),
        }  # fmt: skip
        return self._change("holds", edits(chosen), numbers)

    def _who_may_end_first(self, rows: NDArray[np.int64]) -> list[int]:
        """Return runs (rows) in order: who does no work first, then who is not paid for, the smallest first."""
        run = self.state.run
        paid, counts, works = run.payer[rows] == schema.PAYER_BUDGET, run.idle_cycles[rows] == 0, run.idle_since_ms[rows] == 0
        found: list[int] = rows[np.lexsort((rows, run.gpus_milli[rows], paid, counts, works))].tolist()
        return found

    def _ended(self, row: int) -> Edit:
        """Return the report that a run (row) has ended."""
        run, state = self.state.run, self.state
        name, lead = state.workload.keys[int(run.workload[row])], state.node.keys[int(run.lead[row])]
        return self.trials.operator, RunFinished(workload=name, run=int(run.run_no[row]), node=lead, outcome="succeeded")

    def _free_name(self) -> str:
        """Return a name that no workload has or had."""
        number, taken = 1, (self.state.workload.row_of, self.state.service.row_of, self.state.closed.row_of)
        while any(f"imagined-{number}" in names for names in taken):
            number += 1
        return f"imagined-{number}"

