-- One row per cycle: what was read for it, and the core's own books after it.
create table fact.cycle (
    seq bigint,            -- of its tick: the input_seq of all its decisions
    decision_seq bigint,
    cycle bigint,
    core bigint,
    time_ms bigint,
    why varchar,           -- of the tick
    first_seq bigint,
    records bigint,
    heartbeats bigint,     -- accepted ones
    stale_heartbeats bigint,
    decisions bigint,
    chain varchar,
    digest varchar,
    books varchar          -- JSON; read it through fact.books
);

-- Every decision. Its id is seq.position; body is the decision as stored.
create table fact.decision (
    seq bigint,
    position bigint,
    time_ms bigint,
    type varchar,
    workload varchar,
    run bigint,            -- 0 = none
    node varchar,
    pool varchar,
    budget varchar,
    reason varchar,        -- Refusal, Funding, Outcome, Pending or NodeReason, by type
    payer varchar,
    gpus_milli bigint,
    event_seq bigint,      -- the input it answers; 0 = none
    body varchar
);

-- What was asked for, once the core has admitted it.
create table fact.workload (
    workload varchar,
    seq bigint,            -- of the submission
    time_ms bigint,
    admitted_seq bigint,   -- 0: withdrawn before it was admitted
    admitted_ms bigint,
    principal varchar,     -- who submitted
    name varchar,
    kind varchar,
    pool varchar,
    budget varchar,
    gpus_milli bigint,
    nodes bigint,
    milli_per_node bigint,
    min_runtime_ms bigint,
    expected_runtime_ms bigint,
    checkpoint_interval_ms bigint,
    grace_ms bigint,
    priority bigint,       -- as submitted
    auto_resume boolean,
    movable boolean,
    max_failures bigint,
    command varchar,       -- JSON list
    service varchar        -- that it is a replica of; '' = of none. Then time_ms is when it was made
);

-- Realtime services: what makes a workload as many replicas as its traffic needs.
create table fact.service (
    workload varchar,
    seq bigint,            -- of the submission
    admitted_seq bigint,
    admitted_ms bigint,
    pool varchar,
    budget varchar,
    gpus_milli bigint,     -- of one replica
    min_replicas bigint,
    max_replicas bigint,
    gpus_milli_per_traffic bigint,
    swap_replicas bigint,  -- between two instants of the plan; -1 = no bound
    startup_ms bigint,
    hold_ms bigint,
    penalty bigint
);

-- How many replicas a service was to have, from this decision on.
create table fact.resize (
    seq bigint,
    position bigint,
    time_ms bigint,
    workload varchar,
    before bigint,
    replicas bigint,
    gpus_milli bigint,     -- of one replica
    why varchar,           -- Resize
    bound varchar,         -- Bound; '' = it is what it needs
    need bigint,
    traffic_milli bigint   -- -1 = none was known
);

-- Traffic of services, as observed.
create table fact.demand (
    seq bigint,
    time_ms bigint,
    workload varchar,
    traffic_milli bigint
);

-- What was forecast: a row per step and quantile; of a runtime one row per quantile, in milliseconds.
create table fact.forecast (
    seq bigint,
    time_ms bigint,
    principal varchar,
    model varchar,
    target varchar,
    of varchar,            -- traffic or runtime
    quantile_ppm bigint,
    from_ms bigint,
    until_ms bigint,
    value bigint
);

-- The rolling plans of pools under horizon. Of each only step 0 was carried out. Its blocks lie on the pool's GPUs in one line.
create table fact.plan (
    plan varchar,
    seq bigint,
    position bigint,
    time_ms bigint,
    pool varchar,
    from_ms bigint,        -- step n is from from_ms + n x step_ms on
    step_ms bigint,
    steps bigint,
    gpus bigint,           -- of the line
    objective bigint,
    bound bigint,          -- no plan of what was asked could exceed it
    candidates bigint,
    unmet_gpu_steps bigint,
    waiting bigint         -- jobs that it was made of
);

-- Who is to start when, and where. A row with start -1 had waited too long, and has no place in this plan.
create table fact.plan_job (
    plan varchar,
    seq bigint,
    pool varchar,
    workload varchar,
    start bigint,          -- step
    steps bigint,
    first bigint,          -- GPU of the line
    gpus bigint,           -- a power of two, not less than it asked for
    late boolean           -- it could not start in time, whatever was planned
);

-- What services are to hold, a row per step.
create table fact.plan_service (
    plan varchar,
    seq bigint,
    pool varchar,
    workload varchar,
    step bigint,
    held bigint,
    needs bigint,          -- at the quantile of demand that the pool keeps ready for
    median bigint
);

-- Spells in which so many GPUs are expected to idle.
create table fact.plan_idle (
    plan varchar,
    seq bigint,
    pool varchar,
    from_ms bigint,
    until_ms bigint,
    gpus bigint
);

-- What it asked for beside so many GPUs on so many nodes. No row: nothing, and one pool.
create table fact.wish (
    workload varchar,
    seq bigint,            -- of the submission
    pools varchar,         -- JSON list, in order of wish
    loose boolean,         -- GPUs wherever they are
    within varchar,        -- level of which all must be in one domain; '' = none
    near varchar,          -- level of which it should be in as few domains as can be
    labels varchar,        -- JSON object
    gpu_memory_mib bigint, -- of each GPU
    cpu_milli bigint,      -- of each node; of a loose one for each GPU
    memory_mib bigint,
    exclusive boolean,
    block boolean,
    apart varchar,         -- group of its budget of which no two are in one domain of apart_level ('' = node)
    apart_level varchar
);

create table fact.priority (
    seq bigint,
    time_ms bigint,
    workload varchar,
    priority bigint,
    principal varchar,
    reason varchar
);

-- pending, placed, running, stopping: what a workload was, from one sequence to another. Nothing is open once it is over.
create table fact.workload_state_open (
    state_id bigint,
    workload varchar,
    state varchar,
    run bigint,            -- 0 while pending
    budget varchar,
    pool varchar,
    from_seq bigint,
    from_ms bigint
);

create table fact.workload_state_closed (
    state_id bigint,
    workload varchar,
    state varchar,
    run bigint,
    budget varchar,
    pool varchar,
    from_seq bigint,
    from_ms bigint,
    to_seq bigint,
    to_ms bigint
);

-- One attempt of a workload.
create table fact.run_open (
    run_id bigint,
    workload varchar,
    run bigint,
    pool varchar,
    budget varchar,
    principal varchar,
    kind varchar,
    gpus_milli bigint,
    nodes bigint,
    placed_seq bigint,
    placed_ms bigint,
    placed_payer varchar,
    placed_why varchar,
    beneficiary boolean,   -- started on GPUs that were freed for it
    protected_until_ms bigint,
    reserved_gpu_us bigint,
    resume_from_ms bigint,
    started_seq bigint,    -- 0 = never reported
    started_ms bigint,
    stop_seq bigint,       -- asked to stop; 0 = never
    stop_ms bigint,
    safe_ms bigint,        -- useful run time that is safe at a checkpoint, counted over all runs of the workload
    progress_ms bigint,    -- last reported, safe or not
    payer varchar,         -- now
    payer_since_ms bigint,
    reserved_left_gpu_us bigint
);

create table fact.run_closed (
    run_id bigint,
    workload varchar,
    run bigint,
    pool varchar,
    budget varchar,
    principal varchar,
    kind varchar,
    gpus_milli bigint,
    nodes bigint,
    placed_seq bigint,
    placed_ms bigint,
    placed_payer varchar,
    placed_why varchar,
    beneficiary boolean,
    protected_until_ms bigint,
    reserved_gpu_us bigint,
    resume_from_ms bigint,
    started_seq bigint,
    started_ms bigint,
    stop_seq bigint,
    stop_ms bigint,
    safe_ms bigint,
    progress_ms bigint,
    payer varchar,
    payer_since_ms bigint,
    reserved_left_gpu_us bigint,
    closed_seq bigint,
    end_ms bigint,
    outcome varchar,
    charged_gpu_us bigint,            -- paid by the budget, before refund
    unfunded_gpu_us bigint,           -- before refund
    refunded_gpu_us bigint,
    unfunded_refunded_gpu_us bigint,
    voided_gpu_us bigint,
    lost_gpu_us bigint,
    useful_gpu_us bigint,             -- of its GPU time: all if it succeeded, else what is safe at a checkpoint
    exit_code bigint,
    requeued boolean,
    event_seq bigint
);

-- Who held which GPUs, and who paid: one row per run, node and payer, each with one payer for its whole length.
create table fact.alloc_open (
    alloc_id bigint,
    workload varchar,
    run bigint,
    piece bigint,          -- 0 = the lead node
    pool varchar,
    node varchar,
    gpus utinyint[],       -- indexes on the node
    milli_each bigint,
    gpus_milli bigint,     -- of this row
    budget varchar,        -- of the workload, also when it does not pay
    principal varchar,
    kind varchar,
    payer varchar,         -- budget | unfunded
    why varchar,
    protected_until_ms bigint,
    open_seq bigint,
    start_ms bigint
);

create table fact.alloc_closed (
    alloc_id bigint,
    workload varchar,
    run bigint,
    piece bigint,
    pool varchar,
    node varchar,
    gpus utinyint[],
    milli_each bigint,
    gpus_milli bigint,
    budget varchar,
    principal varchar,
    kind varchar,
    payer varchar,
    why varchar,
    protected_until_ms bigint,
    open_seq bigint,
    start_ms bigint,
    close_seq bigint,
    end_ms bigint,
    gpu_us bigint,         -- gpus_milli x (end_ms - start_ms)
    end_reason varchar     -- an outcome, or funding_changed
);

-- GPUs out of service. A GPU is in at most one row at a time: broken before suspended before cordoned.
create table fact.gpu_state_open (
    state_id bigint,
    node varchar,
    pool varchar,
    state varchar,         -- broken | suspended | cordoned
    gpus utinyint[],
    reason varchar,
    principal varchar,
    from_seq bigint,
    from_ms bigint
);

create table fact.gpu_state_closed (
    state_id bigint,
    node varchar,
    pool varchar,
    state varchar,
    gpus utinyint[],
    reason varchar,
    principal varchar,
    from_seq bigint,
    from_ms bigint,
    to_seq bigint,
    to_ms bigint
);

-- Nodes ordered to be empty: at most one row per node is open. A further order ends one row and begins another.
create table fact.drain_open (
    drain_id bigint,
    node varchar,
    deadline_ms bigint,
    force boolean,         -- funded and protected runs are asked to go too
    reason varchar,
    principal varchar,
    first_ms bigint,       -- when it was first ordered
    from_seq bigint,
    from_ms bigint
);

create table fact.drain_closed (
    drain_id bigint,
    node varchar,
    deadline_ms bigint,
    force boolean,
    reason varchar,
    principal varchar,
    first_ms bigint,
    from_seq bigint,
    from_ms bigint,
    to_seq bigint,
    to_ms bigint
);

-- What is known of each node now (and the projector's memory of it).
create table fact.node_now_open (
    node_id bigint,
    node varchar,
    pool varchar,
    gpus bigint,
    agent varchar,
    cordoned boolean,
    cordon_reason varchar,
    cordoned_by varchar,
    suspended varchar,     -- NodeReason other than silence; '' = not
    silent boolean,
    broken varchar         -- JSON list of GPU indexes
);

-- Double entry. The lines of one transaction (seq, position) sum to zero. A balance of a budget is the sum of its account.
create table fact.ledger (
    seq bigint,
    position bigint,
    line bigint,
    time_ms bigint,
    kind varchar,          -- grant | withdrawal | transfer | reserve | charge | void | unfunded | refund
    pool varchar,
    budget varchar,
    account varchar,       -- issued | budget | reserved | used | pool_time | unfunded
    amount_gpu_us bigint,
    workload varchar,
    run bigint
);

-- Heartbeats by node and five minutes. A beat stands for the time since the one before it, at most COVER_CAP_MS.
create table fact.heartbeat_5m_open (
    node_id bigint,
    node varchar,
    pool varchar,
    gpus bigint,
    bucket_ms bigint,
    first_seq bigint,
    last_seq bigint,
    samples bigint,
    covered_gpu_us bigint,   -- GPUs x time the beats speak for
    busy_gpu_us bigint,      -- of it, computing
    busy_milli_max bigint,
    memory_mib_max bigint,
    watts_sum bigint,
    gpus_down_max bigint,
    beat bigint,
    last_ms bigint
);

create table fact.heartbeat_5m_closed (
    node_id bigint,
    node varchar,
    pool varchar,
    gpus bigint,
    bucket_ms bigint,
    first_seq bigint,
    last_seq bigint,
    samples bigint,
    covered_gpu_us bigint,
    busy_gpu_us bigint,
    busy_milli_max bigint,
    memory_mib_max bigint,
    watts_sum bigint,
    gpus_down_max bigint,
    beat bigint,
    last_ms bigint,
    close_seq bigint       -- of the beat that came after these five minutes
);
