"""Fold of what frames everything else: the opened log, pools, their policy, the core's logic number.

Pools start with the defaults below; ``policy.activated`` replaces them by an event with author and reason.
"""

from __future__ import annotations

from apportion.core import ledger, usage
from apportion.core.errors import CoreMissing
from apportion.core.events import CoreActivated, LogOpened, PolicyActivated, PoolDefined
from apportion.core.fold.access import No, is_operator, not_permitted, principal_row
from apportion.core.fold.topology import check_levels, define_levels
from apportion.core.reasons import Refusal
from apportion.core.state import schema
from apportion.core.state.codes import MOVES_CODE, PACKING_CODE, POLICY_CODE
from apportion.core.state.state import State
from apportion.core.units import PLAN_STEP_MS, PPM

CORE_NUMBER = 1  # the logic this code implements; raised with every change that changes a decision

QUANTUM_MS = 3_600_000
HORIZON_MS = 3_600_000
PROTECTED_CAP_MS = 24 * 3_600_000
HEARTBEAT_TIMEOUT_MS = 180_000
START_TIMEOUT_MS = 300_000
REVIEW_MS = 60_000
IDLE_HOLD_MS = 1_800_000
HALF_LIFE_MS = 7 * 24 * 3_600_000
RESERVATIONS_MAX = 8
BACKFILL_DEPTH = 1_000
WAIT_BOUND_MS = 24 * 3_600_000
DEMAND_PPM = 841_345  # one standard deviation above the median

REFUND_RULES = {
    "unconfirmed": schema.REFUND_UNCONFIRMED,
    "since_checkpoint": schema.REFUND_SINCE_CHECKPOINT,
    "whole_run": schema.REFUND_WHOLE_RUN,
}
BACKFILLS = {"easy": schema.EASY, "conservative": schema.CONSERVATIVE}


def log_opened(state: State, event: LogOpened, principal: str, seq: int) -> No | None:
    """Open the log: identity, source of time, operators. ``core`` and the opener are operators too."""
    if state.counters.opened:
        return No(Refusal.LOG_ALREADY_OPENED, entity=event.log_id)
    check_core_number(event.core, seq)
    state.log_id = event.log_id
    state.counters.opened = 1
    state.counters.stated = int(event.time_source == "stated")
    state.counters.core = event.core
    for name in (principal, "core", *event.operators):
        state.principal.operator[principal_row(state, name)] = 1
    return None


def core_activated(state: State, event: CoreActivated, principal: str, seq: int) -> No | None:
    """From here on cycles follow another logic number; a core that does not have it must stop."""
    if not is_operator(state, principal):
        return not_permitted(principal, "activate a core")
    check_core_number(event.core, seq)
    state.counters.core = event.core
    return None


def check_core_number(number: int, seq: int) -> None:
    """Stop unless this code implements the logic number the log asks for."""
    if number != CORE_NUMBER:
        raise CoreMissing(number, seq, CORE_NUMBER)


def pool_defined(state: State, event: PoolDefined, principal: str, _seq: int) -> No | None:
    """Create a pool and the root of its budget tree."""
    if not is_operator(state, principal):
        return not_permitted(principal, "define a pool")
    if event.pool in state.pool.row_of:
        return No(Refusal.DUPLICATE, "pool", entity=event.pool)
    if (no := check_levels(event.levels)) is not None:
        return no
    ledger.accrue(state, state.counters.time_ms)
    row = state.pool.add(event.pool)
    root = state.budget.add(state.budget_key(event.pool, ""))
    pool, budget = state.pool, state.budget
    pool.root[row] = root
    pool.quantum_ms[row] = QUANTUM_MS
    pool.horizon_ms[row] = HORIZON_MS
    pool.protected_cap_ms[row] = PROTECTED_CAP_MS
    pool.heartbeat_timeout_ms[row] = HEARTBEAT_TIMEOUT_MS
    pool.start_timeout_ms[row] = START_TIMEOUT_MS
    pool.review_ms[row] = REVIEW_MS
    pool.refund_rule[row] = schema.REFUND_SINCE_CHECKPOINT
    pool.policy[row] = schema.FAIR
    pool.packing[row] = schema.BEST_FIT
    pool.half_life_ms[row] = HALF_LIFE_MS
    pool.idle_hold_ms[row] = IDLE_HOLD_MS
    pool.reservations_max[row] = RESERVATIONS_MAX
    pool.backfill[row] = schema.EASY
    pool.backfill_depth[row] = BACKFILL_DEPTH
    pool.step_ms[row] = PLAN_STEP_MS
    pool.demand_ppm[row] = DEMAND_PPM
    pool.wait_bound_ms[row] = WAIT_BOUND_MS
    budget.pool[root] = row
    budget.parent[root] = -1
    budget.share_ppm[root] = PPM
    define_levels(state, row, event.levels)
    _note_silence(state)
    return None


def _note_silence(state: State) -> None:
    state.counters.silence_ms = int(state.pool.column("heartbeat_timeout_ms").min()) // 2


def policy_activated(state: State, event: PolicyActivated, principal: str, _seq: int) -> No | None:
    """Replace the rules of a pool."""
    if not is_operator(state, principal):
        return not_permitted(principal, f"set the policy of pool {event.pool}")
    row = state.pool.row_of.get(event.pool)
    if row is None:
        return No(Refusal.UNKNOWN_POOL, "pool", entity=event.pool)
    pool = state.pool
    timeout = event.heartbeat_timeout_ms or int(pool.heartbeat_timeout_ms[row])
    review = event.review_ms or int(pool.review_ms[row])
    if 2 * review > timeout:
        # a cycle later than that would look like a silence of the whole log (see records.silence)
        return No(
            Refusal.INVALID_DATA, "review_ms", "review_ms must be at most half of heartbeat_timeout_ms",
            {"review_ms": review, "heartbeat_timeout_ms": timeout}, event.pool,
        )  # fmt: skip
    for name in (
        "quantum_ms", "horizon_ms", "protected_cap_ms", "heartbeat_timeout_ms", "start_timeout_ms", "review_ms", "bank_ms",
        "idle_hold_ms", "reservations_max", "backfill_depth", "step_ms", "demand_ppm", "wait_bound_ms",
    ):  # fmt: skip
        value = getattr(event, name)
        if value is not None:
            getattr(pool, name)[row] = value
    if event.half_life_ms is not None:
        ledger.accrue(state, state.counters.time_ms)
        usage.change_half_life(state, row, event.half_life_ms)
    if event.policy is not None and POLICY_CODE[event.policy] != int(pool.policy[row]):
        ledger.accrue(state, state.counters.time_ms)
        ledger.begin_policy(state, row, POLICY_CODE[event.policy])
        state.counters.dirty = 1
    if event.packing is not None:
        pool.packing[row] = PACKING_CODE[event.packing]
    if event.idle_hold_action is not None:
        pool.idle_demotes[row] = int(event.idle_hold_action == "demote")
    if event.moves is not None:
        pool.moves[row] = MOVES_CODE[event.moves]
        state.counters.dirty = 1
    if event.backfill is not None:
        pool.backfill[row] = BACKFILLS[event.backfill]
        state.counters.dirty = 1
    if event.node_loss_refund is not None:
        pool.refund_rule[row] = REFUND_RULES[event.node_loss_refund]
    _note_silence(state)
    return None
