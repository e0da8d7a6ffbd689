"""Whose turn it is: the walk over the waiting in fair order, up to the next one about whom a decision must be made.

A cycle of a full cluster looks at a thousand budgets and a hundred thousand workloads to find that none of them can start. These
kernels do that looking: they leave out whoever certainly gets nothing and stop at the first who might. They decide nothing by
themselves: whether a workload fits is the answer of ``pack.find_gpus``, here is what rules it out beforehand, and the same answer
for the plain case. Each file tells one noun, in this order:

``columns`` what is read and kept; ``order`` which leaf is next; ``money`` whether it would be paid for; ``shapes`` what is asked
for, and whether it may fit; ``places`` what a budget keeps for its first in line; ``ahead`` for whom nodes are kept before their
time; ``heads`` the first of each budget; ``depth`` everybody else; ``stock`` which GPUs, and what is left; ``ranked`` which GPUs by
another packing than best fit; ``classes`` how much is free by who asks; ``freed`` what preemption might give at most; ``starts``
many starts at once; ``takes`` many plans of preemption.

Who calls sees one module: what is listed here. What a file uses of another it imports from there, and tells its hash in
``BUILT_ON``: ``python -m tests.built_on`` writes them.
"""

from __future__ import annotations

from apportion.core.kernels.serve.ahead import fair_order, keep_ahead, next_ahead
from apportion.core.kernels.serve.classes import instants_of, measure_classes
from apportion.core.kernels.serve.columns import (
    BOUND,
    EACH,
    FULL,
    KEPT,
    NODES,
    OPEN,
    SHELF,
    STUCK,
    UNFIT,
    Ends,
    Jobs,
    Lines,
    Places,
    Room,
    Runs,
    Starts,
    Stock,
    Tried,
)
from apportion.core.kernels.serve.depth import OUT, SIGNATURES, Open, is_open, rule_out
from apportion.core.kernels.serve.freed import measure_freed
from apportion.core.kernels.serve.heads import look_and_choose, note_stuck
from apportion.core.kernels.serve.money import (
    ABOVE_ALLOWANCE,
    BALANCE_SPENT,
    BUDGET_CLOSED,
    IDLE_CYCLES,
    WITHIN_ALLOWANCE,
    fundable,
    funded_since,
)
from apportion.core.kernels.serve.order import children, choose_above, choose_all, next_leaf
from apportion.core.kernels.serve.places import add_end, first_in_line, link_ends, place
from apportion.core.kernels.serve.ranked import SHAPES, Ranks, forget, pick_ranked
from apportion.core.kernels.serve.shapes import may_fit, note, says_over_ms, was_tried
from apportion.core.kernels.serve.starts import start_all, start_funded
from apportion.core.kernels.serve.stock import fill_shelves, pick_gpus, take_gpus
from apportion.core.kernels.serve.takes import Takes, take_funded

__all__ = [
    "ABOVE_ALLOWANCE", "BALANCE_SPENT", "BOUND", "BUDGET_CLOSED", "EACH", "FULL", "IDLE_CYCLES", "KEPT", "NODES", "OPEN", "OUT",
    "SHAPES", "SHELF", "SIGNATURES", "STUCK", "UNFIT", "WITHIN_ALLOWANCE", "Ends", "Jobs", "Lines", "Open", "Places", "Ranks",
    "Room", "Runs", "Starts", "Stock", "Takes", "Tried", "add_end", "children", "choose_above", "choose_all", "fair_order",
    "fill_shelves", "first_in_line", "forget", "fundable", "funded_since", "instants_of", "is_open", "keep_ahead", "link_ends",
    "look_and_choose", "may_fit", "measure_classes", "measure_freed", "next_ahead", "next_leaf", "note", "note_stuck", "pick_gpus",
    "pick_ranked", "place", "rule_out", "says_over_ms", "start_all", "start_funded", "take_funded", "take_gpus", "was_tried",
]  # fmt: skip
