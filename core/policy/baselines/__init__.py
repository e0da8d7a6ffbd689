"""Other schedulers' rules, to compare with on equal input: ``fifo``, ``priority``, ``fair_tree``, ``drf``.

They are models of documented rules, not the products. All share the log, the state, the ledger, placement, reservations (EASY:
one, for the first in order that cannot start) and explanations with the policy ``fair``, and differ in two answers only, which
``baseline.Baseline`` names: in which order is tried what waits, and which run may be asked to go for whom.

=========== =============================================== ============================================================
policy      order                                           victims, past their protected time
=========== =============================================== ============================================================
fifo        submission                                      none
priority    the submitter's priority, then submission       runs of lower priority
fair_tree   rank of the budget by level fairshare           none
drf         budget with the least share of GPUs now         runs of budgets whose share is above what the taker's becomes
=========== =============================================== ============================================================

Where there are victims at all, work on idle cycles goes before them, at once.

*Who pays*: none of them has a notion of an allowance, so whatever runs is paid by its budget (``funding.shares_of``); money holds
all the same: work on idle cycles is paid by nobody and comes last, a budget without GPU time left or closed pays nothing, its runs
go on unfunded, and it is nobody's beneficiary. *Funded* therefore does not mean safe here: under ``priority`` and ``drf`` a paid
run may be asked to go, with a certificate that names the rule and its numbers.

``serving`` is the pass over a pool, ``evicting`` plans and writes preemptions; the policy ``fair`` has its own of both
(``placing``, ``preempting``), because it decides in two passes who is funded first.
"""

from __future__ import annotations

from apportion.core.policy.baselines.baseline import Baseline
from apportion.core.policy.baselines.drf import Drf
from apportion.core.policy.baselines.fair_tree import FairTree
from apportion.core.policy.baselines.fifo import Fifo
from apportion.core.policy.baselines.priority import Priority
from apportion.core.state import schema

BASELINES: dict[int, Baseline] = {
    schema.FIFO: Fifo(),
    schema.PRIORITY: Priority(),
    schema.FAIR_TREE: FairTree(),
    schema.DRF: Drf(),
}
