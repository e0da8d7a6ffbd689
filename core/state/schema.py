"""The columns of each table, with their meaning. Everything is int64; ``-1`` or ``0`` as "none" is said per column.

Adding a column is a new snapshot schema: raise ``SCHEMA`` in ``snapshot.py``.
"""

from __future__ import annotations

from apportion.core.state.table import Column, Table

# workload.state
NEW, PENDING, HELD, RUNNING, OVER = 1, 2, 3, 4, 5
# run.state
PLACED, STARTED, STOPPING, ENDED = 1, 2, 3, 4
# run.payer
PAYER_BUDGET, PAYER_UNFUNDED = 1, 2
# run.stop_cause
STOP_NONE, STOP_PREEMPT, STOP_CANCEL, STOP_DRAIN, STOP_MOVE, STOP_RETIRE = 0, 1, 2, 3, 4, 5
# pool.moves
MOVES_NONE, MOVES_PROPOSE, MOVES_CARRY_OUT = 0, 1, 2
# workload.hold
HOLD_NONE, HOLD_FUNDED, HOLD_UNFUNDED, HOLD_MOVED = 0, 1, 2, 3
# pool.refund_rule
REFUND_UNCONFIRMED, REFUND_SINCE_CHECKPOINT, REFUND_WHOLE_RUN = 1, 2, 3
# pool.policy
FAIR, FIFO, PRIORITY, FAIR_TREE, DRF, HORIZON = 1, 2, 3, 4, 5, 6
# pool.packing
BEST_FIT, FGD, BALANCED = 1, 2, 3
# schedule.carry
CARRY_NONE, CARRY_ALL, CARRY_CAP = 0, 1, 2
# pool.backfill
EASY, CONSERVATIVE = 1, 2
# budget.users
USERS_NONE, USERS_EQUAL, USERS_WEIGHTED = 0, 1, 2
# node.suspended
SUSPEND_NONE, SUSPEND_START, SUSPEND_STOP = 0, 1, 2


class PoolTable(Table):
    """GPUs of one class in one cluster. Key: pool name."""

    root: Column  # row of the pool's root budget
    quantum_ms: Column  # q: default protected time, and the length of the certificate's grace
    horizon_ms: Column  # tau: what is owed is paid back over this time
    protected_cap_ms: Column
    bank_ms: Column  # how long a time of its share an idle budget stays owed
    heartbeat_timeout_ms: Column
    start_timeout_ms: Column
    review_ms: Column  # a cycle at least this often while there is work
    refund_rule: Column
    policy: Column
    packing: Column  # which of the nodes that would do
    idle_hold_ms: Column  # a run that does no work for so long is shown
    idle_demotes: Column  # 1 = and is no longer paid by its budget
    half_life_ms: Column  # after which usage counts half, for fair_tree
    moves: Column  # whether runs are moved so that somebody else fits
    reservations_max: Column  # workloads that nodes are kept for
    backfill: Column
    backfill_depth: Column  # workloads that conservative backfill plans
    step_ms: Column  # between two instants of the plan
    wait_bound_ms: Column  # after which a job falls due, whatever its value
    plan_ms: Column  # when it was last planned; 0 = never
    plan_mark: Column  # of what that plan was made
    demand_ppm: Column  # quantile of a forecast of traffic that services are kept ready for
    levels: Column  # of its topology, above the node
    supply_milli: Column  # rates now
    down_milli: Column
    idle_milli: Column
    unfunded_milli: Column
    supply_us: Column  # accrued GPU time up to State.accrued_ms
    down_us: Column
    idle_us: Column
    unfunded_us: Column


class NodeTable(Table):
    """Machines. Key: node name. A node that left keeps its row with ``gpus`` = 0."""

    pool: Column
    agent: Column  # row in PrincipalTable
    first_gpu: Column  # its GPUs are contiguous rows of GpuTable
    gpus: Column  # offered now; 0 after it left
    slots: Column  # rows of GpuTable that are its own, kept for its return
    last_seen_ms: Column
    beat: Column  # highest heartbeat counter
    cordoned: Column
    drain_set_ms: Column  # when it was ordered to be empty; 0 = it was not
    drain_ms: Column  # by when
    drain_force: Column  # 1 = whoever still runs there by then
    suspended: Column  # by failed starts or a run that would not stop; ends by an operator, or by health for failed starts
    silent: Column  # 1 = no heartbeat within the timeout; ends with the next one
    start_failures: Column  # in a row
    broken: Column  # GPUs its last heartbeat called broken
    runs: Column  # runs that hold GPUs here
    domain_1: Column  # row + 1 of its domain of the pool's narrowest level in DomainTable; 0 = in none
    domain_2: Column  # of the level above that
    domain_3: Column
    place: Column  # + 1, in the topology order of its pool; 0 = in no block over nodes
    gpu_memory_mib: Column  # of each of its GPUs; 0 = it has not told
    cpu_milli: Column  # offered; 0 = it has not told, and nobody who asks for some starts here
    memory_mib: Column
    used_cpu_milli: Column  # by runs
    used_memory_mib: Column


class LevelTable(Table):
    """Levels of topology, such as rack or spine. Key: ``pool/level``."""

    height: Column  # 1 = the narrowest of its pool; 0 is the node itself and has no row


class DomainTable(Table):
    """Parts of a pool that are one at a level: a rack, a spine. Key: ``pool/height/path``; no nodes, no row."""

    nodes: Column  # in it now


class LabelTable(Table):
    """Labels that nodes bear. Key: ``key=value``; no bearers, no row."""

    nodes: Column  # that bear it


class TagTable(Table):
    """Which node bears which label. No key."""

    node: Column
    label: Column  # row + 1 in LabelTable; 0 in a free row


class GroupTable(Table):
    """Groups of workloads that keep apart. Key: ``budget path:group``; no wish, no row."""

    wishes: Column  # that name it


class WishTable(Table):
    """What workloads ask of nodes beside their GPUs, each different wish once. Key: its canonical text, with labels and group."""

    workloads: Column  # that have it; none, no row
    within: Column  # height + 1 of the level of which all of its nodes must be in one domain; 0 = no such wish
    near: Column  # height + 1 of the level of which its nodes should be in as few domains as can be; 0 = no such wish
    loose: Column  # 1 = single GPUs wherever they are; ``workload.nodes`` counts them
    gpu_memory_mib: Column  # of each GPU: at least so much; a fraction takes so much of its GPU's
    cpu_milli: Column  # of the node, per part of the shape
    memory_mib: Column
    exclusive: Column  # GPUs of its nodes, all of which it takes; 0 = no such wish
    aligned: Column  # 1 = contiguous and aligned: a block
    apart_level: Column  # height + 1 of the level of which it shares no domain with its group
    group: Column  # row + 1 in GroupTable; 0 = none


class GpuTable(Table):
    """Single GPUs, contiguous per node."""

    node: Column
    position: Column  # index inside the node
    used_milli: Column
    used_memory_mib: Column  # by fractions
    broken: Column  # by heartbeat
    out: Column  # not placeable: broken, or its node is cordoned, suspended or gone
    held_by: Column  # workload row + 1 that the GPU is held for; 0 = nobody


class BudgetTable(Table):
    """Lines of the budget tree. Key: ``pool:path``; the root of a pool is ``pool:``. A parent's row is below its children's."""

    pool: Column
    parent: Column  # -1 for the root
    share_ppm: Column
    children: Column  # count
    users: Column  # how it is shared among who submits to it
    user: Column  # 1 + row of the principal whose line it is; 0 = a line that was set
    closed: Column
    metered: Column  # has been granted GPU time: the balance counts
    granted_us: Column  # sum of grants and transfers
    charged_us: Column  # funded time, own and below, after refunds
    unfunded_us: Column  # unfunded time of its runs, own and below, after refunds
    funded_milli: Column  # rates now, own and below
    unfunded_milli: Column
    running_milli: Column  # r: all running but idle-cycle runs, own and below
    pending_milli: Column  # demand waiting, idle-cycle work excluded, own and below
    lag_us: Column  # L of a leaf: entitled minus delivered, after forfeits; of an inner line before those below it
    lag_milli: Column  # dL/dt since State.accrued_ms
    forfeited_us: Column  # lag that leaves gave up because they could not take it, own and below
    forgiven_us: Column  # debts struck in exchange, own and below
    barred: Column  # 1 = can pay for nothing: closed, or metered with nothing left, or below such (as of the last refresh)
    usage_us: Column  # of a leaf under fair_tree: GPU time, weighted as usage.py says
    workloads: Column  # live workloads of the line itself
    took_ms: Column  # when its last preemption took GPUs; 0 = never


class WorkloadTable(Table):
    """What is asked for, while it is not over. Key: workload id."""

    state: Column
    budget: Column
    pool: Column
    submitter: Column  # row in PrincipalTable
    event_seq: Column
    submit_ms: Column
    nodes: Column  # parts of its shape: each on a node of its own, unless the wish is loose
    milli_per_node: Column
    gpus_milli: Column  # total
    wish: Column  # row + 1 in WishTable; 0 = nothing but GPUs
    min_runtime_ms: Column
    expected_runtime_ms: Column
    grace_ms: Column
    priority: Column
    auto_resume: Column
    movable: Column  # 1 = its runs may be moved, past their protected time
    max_failures: Column
    run_no: Column  # number of the latest run
    run: Column  # row of the run in progress, -1 = none
    progress_ms: Column  # useful time that is safe
    failures: Column  # non-zero exits
    start_failures: Column
    fruitless: Column  # runs in a row that were preempted or lost without new safe progress
    not_before_ms: Column  # back-off
    cancel_seq: Column  # sequence of the accepted cancellation; 0 = none
    reason: Column  # last explained: index into Pending + 1
    planned_ms: Column  # when it was last told to start by the plan; 0 = nothing was told
    funded_ms: Column  # since when it waits at the head of its queue although it would be funded; 0 = it does not
    hold: Column  # why GPUs are held for it: it was funded when they were freed, was not, or is moved there
    proposed: Column  # mark of the moves proposed last so that it starts; 0 = none
    told_ms: Column  # when its reservation said that it starts, as last explained; 0 = it has none
    late_ms: Column  # how much later than that it was when that was last said; 0 = it was not
    outcome: Column  # of the last run: index into Outcome + 1
    service: Column  # row + 1 of the service that it is a replica of; 0 = of none
    retired: Column  # 1 = its service needs it no more
    forecast_ms: Column  # how long it runs in all, as forecast; 0 = nothing was
    choices: Column  # row + 1 in ChoiceTable of the first pool that it named; 0 = it named one


class ServiceTable(Table):
    """Realtime workloads that are as many replicas as their traffic needs. Key: workload id; a replica is a workload of its own."""

    state: Column  # NEW until it is admitted, then RUNNING
    budget: Column
    pool: Column
    submitter: Column
    event_seq: Column
    nodes: Column  # of one replica, as all that follows up to its priority
    milli_per_node: Column
    wish: Column
    min_runtime_ms: Column
    grace_ms: Column
    priority: Column
    min_replicas: Column
    max_replicas: Column
    milli_per_traffic: Column  # GPUs that a unit of traffic needs
    swap_replicas: Column  # by how many it may differ between two instants of the plan; -1 = no bound
    startup_ms: Column
    hold_ms: Column
    penalty: Column
    replicas: Column  # that it is to have now
    made: Column  # number of the last one made
    base: Column  # replicas that it was to have when the step of its last change began
    step: Column  # number of that step: instant / step_ms of its pool
    traffic_milli: Column  # as last observed
    observed_ms: Column  # when; 0 = never
    peak: Column  # most replicas that observed traffic needed in the part of time of that observation
    peak_before: Column  # and in the part before that
    forecast_ms: Column  # up to when there is a forecast; 0 = none
    cancel_seq: Column  # sequence of the accepted cancellation; 0 = none


class ForecastTable(Table):
    """Traffic that is forecast, by step. No key; those of a service are replaced together."""

    service: Column  # row + 1; 0 in a free row
    from_ms: Column
    until_ms: Column
    traffic_milli: Column  # at the quantile that the pool keeps ready for
    median_milli: Column


class ChoiceTable(Table):
    """Pools that a workload named, where it named several: what it is in each. Key: ``workload pool``."""

    workload: Column
    next: Column  # row + 1 of the next in order of its wish; 0 = last
    place: Column  # in that order, 0 = first
    refusal: Column  # why it can never be there: index into Refusal + 1; 0 = it can
    pool: Column  # -1 where it cannot be, as in the following
    budget: Column
    nodes: Column
    milli_per_node: Column
    gpus_milli: Column
    wish: Column
    min_runtime_ms: Column
    reason: Column  # why it did not start there, as last explained: index into Pending + 1


class RunTable(Table):
    """Attempts in progress. Key: ``workload#run``."""

    workload: Column
    budget: Column
    pool: Column
    lead: Column  # node row of its first piece: its agent speaks for the run
    run_no: Column
    state: Column
    gpus_milli: Column
    idle_cycles: Column  # 1 = min_runtime 0
    placed_ms: Column
    started_ms: Column
    protected_until_ms: Column
    reserved: Column  # 1 = protected time was reserved from the budget (funded start)
    payer: Column
    payer_since_ms: Column  # settled up to here
    changed_ms: Column  # when the payer began to pay
    charged_us: Column  # up to payer_since_ms
    unfunded_us: Column
    resume_ms: Column  # progress it started from
    idle_since_ms: Column  # since when it does no work, as decided; 0 = it works, or not long enough
    checkpoint_ms: Column  # when the last safe point was reported; placed_ms at first
    checkpoint_gap_ms: Column  # between that and the one before; 0 = none was reported
    safe_charged_us: Column  # charged and unfunded at that time
    safe_unfunded_us: Column
    stop_cause: Column
    stop_by_ms: Column  # SIGKILL is due
    stop_seq: Column
    ended_ms: Column
    end_seq: Column  # event that ended it; 0 = the cycle did
    outcome: Column  # index into Outcome + 1
    exit_code: Column
    blame: Column  # node row whose agent ended it; the lead when nobody did
    confirmed_ms: Column  # last sign of life of an ended run: the oldest over its nodes
    first_alloc: Column  # row in AllocTable


class AllocTable(Table):
    """GPUs held by runs: a linked list per run, in GPU order. No key."""

    run: Column
    gpu: Column
    milli: Column
    gpu_memory_mib: Column  # of a fraction
    cpu_milli: Column  # of the node, for all that the run has there; stands in its first row there
    memory_mib: Column
    next: Column  # -1 = last
    confirmed_ms: Column  # last report or heartbeat of the GPU's node that knew the run
    idle_ms: Column  # when a beat of the GPU's node first said that the run does no work there; 0 = it works, or nobody knows
    missed: Column  # heartbeats of the GPU's node in a row that do not list the run; -1 = it has never said that it has the run


class PrincipalTable(Table):
    """Principals seen, to give them numbers. Key: principal token."""

    operator: Column  # 1 = may operate


class ClosedTable(Table):
    """Workloads that are over: their ids stay taken for ``CLOSED_RETENTION_MS``. Key: workload id."""

    closed_ms: Column


class ChangeTable(Table):
    """Changes of money made by events: a second copy of one does nothing. Key: envelope id, kept ``CHANGE_RETENTION_MS``."""

    made_ms: Column


class ScheduleTable(Table):
    """Grants by the calendar, at most one per line. Key: that of the budget line."""

    budget: Column
    event_seq: Column
    amount_us: Column
    period_months: Column  # 1, 3; 0 = once
    carry: Column
    cap_ppm: Column
    next_ms: Column  # when the next period begins, or the last one is settled
    until_ms: Column  # 0 = no end
    opened: Column  # 1 = a period is running
    given_us: Column  # for this period, with what was carried into it
    base_us: Column  # charged and promised when it began


class PlannedTable(Table):
    """Entitlements that begin in the future. No key; at most one row per line and instant."""

    budget: Column
    at_ms: Column  # above 0 in every row that is in use
    share_ppm: Column
    closed: Column
