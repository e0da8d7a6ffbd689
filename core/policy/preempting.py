"""Preemption, planned whole: which unfunded runs must stop so that a funded workload starts (FUNDING rule 1.7).

A run may be a victim when (a) it is unfunded, (b) past its protected time, (c) its budget stays above its allowance by more than
half of it when all victims of the plan are gone (``2 * r + s > 2 * f``: none of them could be funded again at once, and the sum
of (f - r)^2 falls with each), and (d) its budget did not itself take GPUs by preemption within the quantum. Neither (c) nor (d) is
asked of runs on idle cycles, and of those that were demoted because they do no work (``idling``). A budget without a share lives
on what nobody is entitled to, and takes only from these two. The plan is the one with the least cost, compared number by number:

1. GPU time since the last checkpoint that would be lost, of each run at most one quantum: who saves his work loses less and goes
   before who does not, but nobody makes himself a fortress by never saving it; work on idle cycles was promised nothing, and
   counts 0, like that of demoted runs;
2. GPUs taken from runs that are not on idle cycles; 3. the GPU time that idle cycles would lose; 4. GPUs taken at all;
5. GPUs times the place of their budget in the order of (r - f) / share: the most over-served pays first;
6. the sum of how long ago they started; 7. the sum of how long ago they were submitted, in records.

Never more than ``needed + the largest victim`` is taken. How the plan is found, and where that is bounded, is in ``choosing``.

A victim that turns out not to be needed is put back. That cannot break (c) for the others (what is given up of a budget only
shrinks), and it is checked again before anybody is told. If the beneficiary would still not fit, nobody dies. The proof that
this cannot loop is in FUNDING section 1; the property tests assert its quantity at every step.

A pure function of the state; writes nothing but decisions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import takers
from apportion.core.kernels import targets as target_kernels
from apportion.core.policy.certifying import write_plan
from apportion.core.policy.choosing import Field, least_plan
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.state import schema
from apportion.core.state.state import State
from apportion.core.units import PPM

I64 = NDArray[np.int64]


def preempt_for(state: State, emit: Emit, shares: Shares, workload: int, masked: I64) -> list[int] | None:
    """Plan for ``workload`` and write the plan; returns the workloads that lose their runs, or None when there is no plan.

    ``masked`` (per node row) > 0 leaves out the nodes kept for somebody else's reservation.
    """
    field, loose_milli = field_of(state, shares, workload)
    free_milli = int(state.pool.idle_milli[int(state.workload.pool[workload])])
    if field is None or loose_milli + free_milli < int(state.workload.gpus_milli[workload]):
        return None
    found = least_plan(state, field, workload, masked)
    if found is None:
        return None
    victims, gpus = _in_order(state, field, found[0]), found[1]
    if not _allowed(state, field, victims, int(state.workload.gpus_milli[workload])):
        return None

    write_plan(state, emit, shares, workload, victims, gpus, lambda victim, _gone: numbers_of(state, victim))
    return [int(state.run.workload[run]) for run in victims]


def numbers_of(state: State, victim: int) -> dict[str, int]:
    """Return what a certificate tells beside the shares."""
    run = state.run.cells
    since_ms = run.idle_since_ms[victim]
    return {"idle_since_ms": since_ms} if since_ms and state.pool.cells.idle_demotes[run.pool[victim]] else {}


def field_of(state: State, shares: Shares, workload: int) -> tuple[Field | None, int]:
    """Apply rules (a), (b), (d), and (c) for each run alone, and count costs; returns also how much may go. None: nothing may."""
    run, budget, now_ms = state.run, state.budget, state.counters.time_ms
    pool, taker = int(state.workload.pool[workload]), int(state.workload.budget[workload])
    quantum_ms, milli = int(state.pool.quantum_ms[pool]), run.column("gpus_milli")
    may_go, counts_for = np.empty(run.used, dtype=np.int64), np.empty(run.used, dtype=np.int64)
    room, gives = np.empty(budget.used, dtype=np.int64), np.zeros(budget.used, dtype=np.uint8)
    loose_milli = int(
        takers.eligible(
            pool, taker, int(_entitled(state, taker)), now_ms, quantum_ms, run.used, run.pool, run.state, schema.PLACED,
            schema.STARTED, run.payer, schema.PAYER_UNFUNDED, run.protected_until_ms, run.idle_cycles, run.idle_since_ms,
            state.pool.idle_demotes, run.budget, run.gpus_milli, budget.took_ms, shares.running, shares.allowance, room, may_go,
            counts_for, gives,
        )
    )  # fmt: skip
    if not loose_milli:
        return None, 0
    rank, cost = _ranks(state, room, np.flatnonzero(gives)), np.zeros((run.used, target_kernels.COSTS), dtype=np.int64)
    takers.costs(
        now_ms, state.counters.seq, quantum_ms, run.used, may_go, counts_for, run.gpus_milli, run.checkpoint_ms, run.placed_ms,
        run.workload, state.workload.event_seq, state.workload.service, rank, cost,
    )  # fmt: skip
    return Field(may_go, cost, counts_for, milli, room, rank), loose_milli


def _entitled(state: State, line: int) -> bool:
    while line >= 0 and state.budget.share_ppm[line]:
        line = int(state.budget.parent[line])
    return line < 0


def _ranks(state: State, room: I64, leaves: I64) -> I64:
    """Return per budget row its place among ``leaves`` by (running - allowance) / share, the largest first, ties by row."""
    budget = state.budget
    weight = np.zeros(budget.used, dtype=np.int64)
    target_kernels.weights(budget.used, budget.parent, budget.share_ppm, weight)
    rank = np.zeros(budget.used, dtype=np.int64)
    order = np.argsort(-(room[leaves] * PPM // weight[leaves]), kind="stable")
    rank[leaves[order]] = np.arange(len(leaves), dtype=np.int64)
    return rank


def _in_order(state: State, field: Field, victims: list[int]) -> list[int]:
    """Return the order in which certificates count them: idle cycles, then by budget, the largest first, the latest first.

    With the smallest last, rule (c) holds for each certificate whenever it holds for the last: the order hides nothing.
    """
    run, seq = state.run, state.workload.event_seq

    def place(row: int) -> tuple[int, int, int, int, int]:
        leaf = int(field.leaf[row])
        rank = -1 if leaf < 0 else int(field.rank[leaf])
        return rank, leaf, -int(field.milli[row]), -int(run.placed_ms[row]), -int(seq[int(run.workload[row])])

    return sorted(victims, key=place)


def _allowed(state: State, field: Field, victims: list[int], need_milli: int) -> bool:
    """Check again, on what is left of the plan, what the search promised."""
    given: dict[int, int] = {}
    for run in victims:
        leaf, milli = int(field.leaf[run]), int(field.milli[run])
        if leaf >= 0:
            given[leaf] = given.get(leaf, 0) + milli
            if 2 * given[leaf] - milli >= int(field.room[leaf]):  # (c), r without those before it
                return False
    sizes = [int(field.milli[run]) for run in victims]
    return sum(sizes) <= need_milli + max(sizes)
