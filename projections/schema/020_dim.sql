-- Versions, append-only: each row holds from its seq on, until the next row of the same key.
create table dim.log (
    seq bigint,
    time_ms bigint,
    log_id varchar,
    time_source varchar,
    core bigint,
    principal varchar
);

create table dim.operator (
    seq bigint,
    principal varchar
);

create table dim.pool (
    seq bigint,
    time_ms bigint,
    pool varchar,
    gpu_class varchar,
    principal varchar
);

create table dim.policy_version (
    seq bigint,
    time_ms bigint,
    pool varchar,
    policy varchar,
    quantum_ms bigint,
    horizon_ms bigint,
    protected_cap_ms bigint,
    heartbeat_timeout_ms bigint,
    start_timeout_ms bigint,
    review_ms bigint,
    node_loss_refund varchar,
    half_life_ms bigint,
    bank_ms bigint,
    weight_milli bigint,   -- of a GPU of the pool in sums over pools, for reports only
    idle_hold_ms bigint,
    idle_hold_action varchar,
    packing varchar,
    moves varchar,
    reservations_max bigint,  -- waiting workloads that nodes are kept for
    backfill varchar,
    backfill_depth bigint,  -- waiting workloads that a plan is made of, at most
    step_ms bigint,         -- between two instants of the plan
    wait_bound_ms bigint,   -- after which a job falls due, under policy horizon
    demand_ppm bigint,      -- quantile of forecast traffic that services are kept ready for
    principal varchar,
    reason varchar
);

-- gpus = 0: the node left.
create table dim.node_version (
    seq bigint,
    time_ms bigint,
    node varchar,
    pool varchar,
    gpus bigint,
    agent varchar,
    rack varchar,
    gpu_memory_mib bigint,
    cpu_milli bigint,
    memory_mib bigint,
    principal varchar,
    reason varchar
);

create table dim.budget_version (
    seq bigint,
    time_ms bigint,
    pool varchar,
    budget varchar,        -- path
    parent varchar,        -- '' = the pool's root
    share_ppm bigint,      -- of its parent
    closed boolean,
    from_ms bigint,        -- the row holds in [from, until) unless a later row covers the instant as well
    until_ms bigint,       -- 0 = no end
    principal varchar,
    reason varchar
);

-- Grants by the calendar. Each row replaces the one before it for its budget; what periods brought and took is in the ledger.
create table dim.grant_schedule (
    seq bigint,
    time_ms bigint,
    pool varchar,
    budget varchar,
    gpu_us bigint,         -- per period; 0: ends at the next one
    period varchar,        -- monthly, quarterly, none
    carry varchar,         -- none, all, cap
    carry_cap_ppm bigint,  -- of gpu_us
    from_ms bigint,        -- 0: at once, or at the next period of the schedule it replaces
    until_ms bigint,       -- 0 = no end
    principal varchar,
    reason varchar
);

create table dim.member_version (
    seq bigint,
    time_ms bigint,
    budget varchar,
    member varchar,
    role varchar,
    held boolean,          -- false: revoked
    weight_milli bigint,   -- among the users of a budget that is shared by weight
    principal varchar,
    reason varchar
);
