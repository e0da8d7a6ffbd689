"""Every answer the core gives that is not "yes": enums, ordered by precedence, one comment each.

The values are stable words: they stand in decisions, in SQL and on pages. Text for people is made from them by one
table outside the core (``adapters.text.wording``). When several reasons hold, the one listed first is reported.
"""

from __future__ import annotations

from enum import Enum


class Refusal(str, Enum):
    """Why an input was refused (decisions ``rejected`` and ``workload.rejected``)."""

    MALFORMED_SUBJECT = "malformed_subject"  # not ap.ev.<principal>.<type>
    TOO_LARGE = "too_large"  # body above MAX_BODY_BYTES
    BROKEN_JSON = "broken_json"  # the envelope is not JSON of the right shape
    TYPE_MISMATCH = "type_mismatch"  # type in the body is not the type in the subject
    UNKNOWN_TYPE = "unknown_type"  # no such event type
    UNKNOWN_VERSION = "unknown_version"  # this core does not know that version of the type
    INVALID_DATA = "invalid_data"  # a field is missing, of the wrong type or outside its bounds
    LOG_NOT_OPENED = "log_not_opened"  # the first record must be log.opened
    LOG_ALREADY_OPENED = "log_already_opened"  # a second log.opened changes nothing
    NOT_PERMITTED = "not_permitted"  # the principal of the subject may not do this
    UNKNOWN_POOL = "unknown_pool"  # no pool.defined has named it
    UNKNOWN_LEVEL = "unknown_level"  # no level of that name in the topology of a pool named
    UNKNOWN_NODE = "unknown_node"  # it never joined, or it has left
    UNKNOWN_BUDGET = "unknown_budget"  # no budget.set has made this path in this pool
    UNKNOWN_WORKLOAD = "unknown_workload"  # never admitted, or over and out of the tables
    DUPLICATE = "duplicate"  # this natural key exists already with other content, or again
    BUDGET_CLOSED = "budget_closed"  # no new workloads; no open budget below it, then or as planned; numbers: at_ms
    BUDGET_NOT_LEAF = "budget_not_leaf"  # workloads charge leaves of the tree only
    BUDGET_IN_USE = "budget_in_use"  # cannot close or subdivide: it has workloads, children or a balance
    OVERCOMMITTED = "overcommitted"  # siblings would exceed the whole, now or as planned; numbers: sum_ppm, limit_ppm, at_ms
    BALANCE_TOO_LOW = "balance_too_low"  # a transfer above what the budget has left; numbers: left_gpu_us
    NEVER_FITS = "never_fits"  # no pool named has, or ever had joined, nodes for this shape; numbers: largest_milli of such a shape
    BAD_SHAPE = "bad_shape"  # gpus_milli does not divide over nodes, a fraction on several nodes, or wishes that contradict it
    MIN_RUNTIME_ABOVE_CAP = "min_runtime_above_cap"  # numbers: cap_ms
    WORKLOAD_ENDED = "workload_ended"  # too late: it is over already
    POOL_TOO_LARGE = "pool_too_large"  # a pool holds at most 16,384 GPUs; numbers: limit_milli
    NODE_OCCUPIED = "node_occupied"  # a joined node cannot change its size while it holds runs
    STALE = "stale"  # a report about a run or node that is over; also counted in the state


class Outcome(str, Enum):
    """How a run or a workload ended (decision ``run.closed``)."""

    SUCCEEDED = "succeeded"  # also a victim that finished by itself inside its grace
    FAILED = "failed"  # non-zero exit
    CANCELLED = "cancelled"  # its submitter, an administrator of its budget or an operator withdrew it
    PREEMPTED = "preempted"  # ended because it was asked to make room
    DRAINED = "drained"  # its node is wanted empty and it was asked to go; what it lost by that is refunded like a lost node's
    MOVED = "moved"  # it may be moved, and was asked to make room for a gang; it starts elsewhere at once; refunded as DRAINED
    NODE_LOST = "node_lost"  # the node left, went silent or broke; refunded by the policy in force
    START_FAILED = "start_failed"  # never reported started within the pool's limit, or refused by the agent
    LOST = "lost"  # the agent no longer knows it; charge ends at the last confirmation
    RETIRED = "retired"  # its service needs it no more


OTHERS_WISH = (Outcome.DRAINED, Outcome.MOVED)  # says nothing about the work: no back-off counts it, what was lost is given back
RESUMABLE = (Outcome.PREEMPTED, *OTHERS_WISH, Outcome.NODE_LOST, Outcome.LOST)  # nobody's failure: it may go on elsewhere


class Payer(str, Enum):
    """Who pays for a run's time."""

    BUDGET = "budget"  # the budget it was submitted to
    UNFUNDED = "unfunded"  # nobody: idle capacity, preemptible once its protected time is over


class Funding(str, Enum):
    """Why a run became funded or unfunded (``run.placed``, ``funding.changed``)."""

    WITHIN_ALLOWANCE = "within_allowance"  # at least half of it fits into the budget's allowance
    ABOVE_ALLOWANCE = "above_allowance"  # it, or one before it in order, does not
    BALANCE_SPENT = "balance_spent"  # the budget's granted GPU time is used up
    IDLE_CYCLES = "idle_cycles"  # min_runtime 0: never funded
    BUDGET_CLOSED = "budget_closed"  # nothing is funded by a closed budget
    IDLE_HOLD = "idle_hold"  # it holds GPUs and does no work, and the pool's policy demotes that; numbers: idle_since_ms


class Pending(str, Enum):
    """Why a workload waits (``pending.explained``), most specific first."""

    HELD = "held"  # GPUs are held for it and their last run is ending; numbers: held_milli, need_milli
    BACKOFF = "backoff"  # its last start or run failed, or its last runs brought no safe progress; numbers: until_ms
    NO_CAPACITY = "no_capacity"  # the pool's healthy nodes cannot hold the shape even when empty; numbers: largest_milli
    DRAINING = "draining"  # healthy nodes are being drained, the first by until_ms, and it does not say that it is over by then
    PROTECTED_RUNS = "protected_runs"  # nodes are kept for it, protected or funded runs have to end there; earliest_ms, late_ms
    RESERVED = "reserved"  # free GPUs are kept for others, the first of them until earliest_ms, and it is not over by then
    NO_DOMAIN = "no_domain"  # it would fit on nodes of several domains, but asks for one; numbers: free_milli, need_milli
    NO_ROOM = "no_room"  # enough GPUs are free, but not as asked (labels, CPU, memory, apart); numbers: free_milli, need_milli
    NO_BLOCK = "no_block"  # enough GPUs are free, but not on one node / enough whole nodes; numbers: free_milli, need_milli
    NO_FREE_GPUS = "no_free_gpus"  # fewer GPUs free than asked; numbers: free_milli, need_milli
    BUDGET_ORDER = "budget_order"  # it would fit, but would delay the first of its own budget; numbers: ahead
    PLANNED = "planned"  # GPUs are free for it, but the plan of its pool has others or a service in mind for them; planned_ms


class NodeReason(str, Enum):
    """Why a node was suspended (``node.suspended``)."""

    HEARTBEAT_TIMEOUT = "heartbeat_timeout"  # numbers: last_seen_ms
    START_FAILURES = "start_failures"  # numbers: failures
    STOP_TIMEOUT = "stop_timeout"  # a run did not end after SIGKILL was due
    DRAINED = "drained"  # the deadline of its drain has come; numbers: deadline_ms, runs


class Resize(str, Enum):
    """Why a realtime service is to have another number of replicas (``service.resized``)."""

    LEAST = "least"  # it begins with its minimum, or falls back to it; nothing was observed or forecast
    TRAFFIC = "traffic"  # traffic observed; numbers: traffic_milli, need
    FORECAST = "forecast"  # traffic that is forecast for when a replica started now would serve; numbers: traffic_milli, need
    HELD = "held"  # what it needed in its hold time; numbers: need


class Bound(str, Enum):
    """Why a service is to have fewer or more replicas than it needs (``service.resized``); "" = it has what it needs."""

    LEAST = "least"  # its minimum
    MOST = "most"  # its maximum
    SWAP = "swap"  # it may differ by so many between two instants of the plan
    STALE = "stale"  # no traffic was observed for 15 minutes: it does not shrink


class TickWhy(str, Enum):
    """Why the leader wrote a ``clock.tick``."""

    DIRTY = "dirty"  # an input changed something that may change a decision
    DUE = "due"  # a deadline in the state has come
    PLAN = "plan"  # so has the next step of a rolling plan: the slow cycle
