"""Inside a budget the first in line goes first: what may start behind a head that waits for its budget's allowance.

Without this, small work of a budget takes every GPU that its big head could save up for, and the head never starts (measured at
3 times demand: gangs of 64 GPUs waited for 180 of 192 hours). The rule is EASY backfill on the allowance instead of on nodes. If
nothing else of its budget started, the head would be funded at an instant T that follows from what the budget is owed, from what
it is entitled to, and from the ends its own runs state: the first at which ``2 r + s <= 2 (a + L / tau)``, with L growing by
a - r. At T something may be to spare (an end gives more than was missing): ``spare = L + (a - r - s / 2) tau``, in GPU time. Work
behind the head may use that: so long as it runs before T it uses up L, and if it does not say that it is over by T, it is also
part of r then. A head that its budget could not pay anyhow (closed, spent) keeps nothing, and neither does one that would never
be funded: where the cap of rule 1.4 holds an allowance down, saving does not raise it. (Else several large heads save at once, each
too little, and who is deepest in debt runs on what they save: with gangs of four times the share budgets got 15 % less than their
due.) GPUs that would then idle, because everybody saves, go to work that is over by T even when it uses more: it delays its own
head a little, and nobody else.

Nobody else is held back by it: what one budget saves, others use. A pure function of the state; nothing of it is stored. It looks
at stated limits, never at what a run will really take. Found by ``kernels.serve.place``; the naive equivalent is ``oracles.place``.
"""

from __future__ import annotations

import numpy as np

from apportion.core.kernels import serve
from apportion.core.state import schema
from apportion.core.state.state import State


def places_of(state: State) -> serve.Places:
    """Return room for what each budget keeps, of which nothing is known yet."""
    rows = state.budget.used
    return serve.Places(*(np.zeros(rows, dtype=np.int64) for _column in serve.Places._fields))


def ends_of(state: State) -> serve.Ends:
    """Return the runs of each budget that have not been asked to stop, by the end they state; with room for all that waits."""
    run, table, rows, memo = state.run, state.workload, state.budget.used, state.memo.at(state.moved)
    startable = min(state.queued, int(state.pool.column("idle_milli").sum()))  # nobody takes less than a thousandth of a GPU
    if memo.ends is not None and len(memo.ends.next) >= run.used + startable:
        return memo.ends
    first, sorted_ = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    room = max(run.capacity, run.used + startable)
    link, end_ms, milli = (np.zeros(room, dtype=np.int64) for _column in range(3))
    made = serve.Ends(
        first, sorted_, link, end_ms, milli, run.workload, run.placed_ms, run.checkpoint_ms, table.expected_runtime_ms,
        table.progress_ms,
    )  # fmt: skip
    serve.link_ends(run.used, run.state, schema.PLACED, schema.STARTED, run.idle_cycles, run.budget, run.gpus_milli, made)
    memo.ends = made
    return made
