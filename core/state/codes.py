"""Enum members as the integers that columns hold: 1 + position in the enum, 0 = none.

So enums whose members are stored (outcome, pending reason, refusal) only ever grow at their end, or the snapshot schema is raised.
"""

from __future__ import annotations

from apportion.core.reasons import NodeReason, Outcome, Payer, Pending, Refusal
from apportion.core.state import schema

OUTCOMES = list(Outcome)
OUTCOME_CODE = {outcome: index + 1 for index, outcome in enumerate(OUTCOMES)}
PENDING_CODE = {reason.value: index + 1 for index, reason in enumerate(Pending)}
REFUSALS = list(Refusal)
REFUSAL_CODE = {reason.value: index + 1 for index, reason in enumerate(Refusal)}
SUSPEND_CODE = {
    NodeReason.START_FAILURES.value: schema.SUSPEND_START,
    NodeReason.STOP_TIMEOUT.value: schema.SUSPEND_STOP,
}
POLICY_CODE = {
    "fair": schema.FAIR,
    "fifo": schema.FIFO,
    "priority": schema.PRIORITY,
    "fair_tree": schema.FAIR_TREE,
    "drf": schema.DRF,
    "horizon": schema.HORIZON,
}
PACKING_CODE = {"best_fit": schema.BEST_FIT, "fgd": schema.FGD, "balanced": schema.BALANCED}
PACKINGS = {code: name for name, code in PACKING_CODE.items()}
POLICIES = {code: name for name, code in POLICY_CODE.items()}
MOVES_CODE = {"none": schema.MOVES_NONE, "propose": schema.MOVES_PROPOSE, "carry_out": schema.MOVES_CARRY_OUT}
PAYER_CODE = {Payer.BUDGET.value: schema.PAYER_BUDGET, Payer.UNFUNDED.value: schema.PAYER_UNFUNDED}
