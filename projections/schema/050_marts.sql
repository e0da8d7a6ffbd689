-- What was so at sequence q, whose cycle was at ms. What is open ends there, never at the wall clock: every answer is a function of
-- the sequence alone.
--
-- All tables stand at readable_seq(), so q must not be above it; later commits are in the journal until the tables are brought up.

create macro mart.readable_seq() as (select coalesce(max(last_seq), 0) from meta.refresh);

create macro mart.alloc_at(q, ms) as table
select alloc_id, workload, run, piece, pool, node, gpus, milli_each, gpus_milli, budget, principal, kind, payer, why,
    protected_until_ms, open_seq, start_ms, least(end_ms, ms) as end_ms,
    gpus_milli * (least(end_ms, ms) - start_ms) as gpu_us, close_seq > q as is_open,
    case when close_seq > q then '' else end_reason end as end_reason, close_seq
from fact.alloc_closed
where open_seq <= q
union all
select alloc_id, workload, run, piece, pool, node, gpus, milli_each, gpus_milli, budget, principal, kind, payer, why,
    protected_until_ms, open_seq, start_ms, ms, gpus_milli * (ms - start_ms), true, '', null
from fact.alloc_open
where open_seq <= q;

-- Only what is held at q: a point in time, found by zone maps.
create macro mart.held_at(q) as table
select alloc_id, workload, run, piece, pool, node, gpus, milli_each, gpus_milli, budget, principal, kind, payer, why,
    protected_until_ms, open_seq, start_ms
from fact.alloc_closed
where open_seq <= q and close_seq > q
union all
select alloc_id, workload, run, piece, pool, node, gpus, milli_each, gpus_milli, budget, principal, kind, payer, why,
    protected_until_ms, open_seq, start_ms
from fact.alloc_open
where open_seq <= q;

create macro mart.state_at(q) as table
select state_id, workload, state, run, budget, pool, from_seq, from_ms
from fact.workload_state_closed
where from_seq <= q and to_seq > q
union all
select state_id, workload, state, run, budget, pool, from_seq, from_ms
from fact.workload_state_open
where from_seq <= q;

create macro mart.run_at(q, ms) as table
select run_id, workload, run, pool, budget, principal, kind, gpus_milli, nodes, placed_seq, placed_ms, placed_payer, placed_why,
    beneficiary, protected_until_ms, reserved_gpu_us, resume_from_ms,
    case when started_seq <= q then started_ms else 0 end as started_ms,
    case when stop_seq <= q then stop_ms else 0 end as stop_ms,
    closed_seq > q as is_open, least(end_ms, ms) as end_ms,
    case when closed_seq > q then '' else outcome end as outcome,
    case when closed_seq > q then 0 else charged_gpu_us end as charged_gpu_us,
    case when closed_seq > q then 0 else unfunded_gpu_us end as unfunded_gpu_us,
    case when closed_seq > q then 0 else refunded_gpu_us end as refunded_gpu_us,
    case when closed_seq > q then 0 else unfunded_refunded_gpu_us end as unfunded_refunded_gpu_us,
    case when closed_seq > q then 0 else lost_gpu_us end as lost_gpu_us,
    case when closed_seq > q then 0 else useful_gpu_us end as useful_gpu_us,
    case when closed_seq > q then 0 else exit_code end as exit_code,
    case when closed_seq > q then false else requeued end as requeued,
    case when closed_seq > q then null else closed_seq end as closed_seq
from fact.run_closed
where placed_seq <= q
union all
select run_id, workload, run, pool, budget, principal, kind, gpus_milli, nodes, placed_seq, placed_ms, placed_payer, placed_why,
    beneficiary, protected_until_ms, reserved_gpu_us, resume_from_ms,
    case when started_seq <= q then started_ms else 0 end,
    case when stop_seq <= q then stop_ms else 0 end,
    true, ms, '', 0, 0, 0, 0, 0, 0, 0, false, null
from fact.run_open
where placed_seq <= q;

-- GPUs out of service, one row per node and state.
create macro mart.out_at(q, ms) as table
select node, pool, state, gpus, reason, principal, from_seq, from_ms, least(to_ms, ms) as to_ms, to_seq > q as is_open
from fact.gpu_state_closed
where from_seq <= q
union all
select node, pool, state, gpus, reason, principal, from_seq, from_ms, ms, true
from fact.gpu_state_open
where from_seq <= q;

-- Orders to empty a node, with the sequences between which each was in force.
create macro mart.drain_at(q) as table
select node, deadline_ms, force, reason, principal, first_ms, from_seq, from_ms, to_seq, to_seq > q as is_open
from fact.drain_closed
where from_seq <= q
union all
select node, deadline_ms, force, reason, principal, first_ms, from_seq, from_ms, null, true
from fact.drain_open
where from_seq <= q;

-- Times in which a node was in supply.
create macro mart.supply_at(q, ms) as table
select node, pool, gpus, agent, rack, seq as from_seq, time_ms as from_ms,
    case when valid_to_seq <= q then valid_to_ms else ms end as to_ms,
    coalesce(valid_to_seq > q, true) as is_open
from dim.node
where seq <= q and gpus > 0;

-- Budget lines as they stood, with the part of the pool's time each is entitled to.
-- The last row that covers the instant counts; where none does a line is closed before it first begins, and has no share after.
create macro mart.budget_at(q, ms) as table
with recursive said as (
    select *, min(from_ms) over (partition by pool, budget) as begin_ms,
        from_ms <= ms and (until_ms = 0 or ms < until_ms) as covers
    from dim.budget_version
    where seq <= q
),
line as (
    select pool, budget, parent, case when covers then share_ppm else 0 end as share_ppm,
        case when covers then closed else ms < begin_ms end as closed, seq, time_ms, principal, reason
    from said
    qualify row_number() over (partition by pool, budget order by covers desc, seq desc) = 1
),
tree as (
    select *, 1 as level, case when closed then 0 else share_ppm end as entitled_ppm
    from line
    where parent = ''
    union all
    select l.*, t.level + 1, case when l.closed then 0 else t.entitled_ppm * l.share_ppm // 1000000 end
    from line as l join tree as t on l.pool = t.pool and l.parent = t.budget
)
select * from tree;

-- GPU time per budget line itself, net of refunds, and what it holds and waits for.
create macro mart.burn_at(q, ms) as table
select pool, budget, sum(funded)::bigint as funded_gpu_us, sum(unfunded)::bigint as unfunded_gpu_us,
    sum(refunded)::bigint as refunded_gpu_us, sum(running)::bigint as running_milli, sum(running_funded)::bigint as funded_milli,
    sum(pending)::bigint as pending_milli, sum(waiting)::bigint as pending_count
from (
    select pool, budget,
        case when payer = 'budget' then gpu_us else 0 end as funded,
        case when payer = 'budget' then 0 else gpu_us end as unfunded,
        0 as refunded,
        case when is_open then gpus_milli else 0 end as running,
        case when is_open and payer = 'budget' then gpus_milli else 0 end as running_funded,
        0 as pending, 0 as waiting
    from mart.alloc_at(q, ms)
    union all
    select pool, budget, -refunded_gpu_us, -unfunded_refunded_gpu_us, refunded_gpu_us + unfunded_refunded_gpu_us, 0, 0, 0, 0
    from fact.run_closed
    where closed_seq <= q and (refunded_gpu_us > 0 or unfunded_refunded_gpu_us > 0)
    union all
    select s.pool, s.budget, 0, 0, 0, 0, 0, w.gpus_milli, 1
    from mart.state_at(q) as s join fact.workload as w using (workload)
    where s.state = 'pending'
)
group by all;

-- A workload by its id, or by the name its owner gave it (the newest of that name).
create macro mart.workload_named(x, q) as coalesce(
    (select max(workload) from fact.workload where workload = x),
    (select arg_max(workload, seq) from fact.workload where name = x and seq <= q and name <> '' and service = ''),
    x
);

-- Five minutes of heartbeats that had all been heard by q, or the part of the last five minutes that had.
create macro mart.heard_at(q) as table
select node, pool, gpus, bucket_ms, last_seq, samples, covered_gpu_us, busy_gpu_us, memory_mib_max, watts_sum, last_ms
from fact.heartbeat_5m_closed
where last_seq <= q
union all
select node, pool, gpus, bucket_ms, last_seq, samples, covered_gpu_us, busy_gpu_us, memory_mib_max, watts_sum, last_ms
from fact.heartbeat_5m_open
where last_seq <= q;

create macro mart.ppm(part, whole) as case when whole > 0 then (part::hugeint * 1000000 // whole)::bigint end;

-- The three states of a run that people see: protected while it may not be interrupted, else by who pays.
create macro mart.standing(payer, protected_until_ms, ms) as
    case when protected_until_ms > ms then 'protected' when payer = 'budget' then 'funded' else 'unfunded' end;

-- The last plan of each pool at q, or the one that is named.
create macro mart.plan_at(q, wanted, of_pool) as table
select * from fact.plan
where seq <= q and (wanted is null or plan = wanted) and (of_pool is null or pool = of_pool)
qualify row_number() over (partition by pool order by seq desc) = 1;

-- What a service needed, by the traffic last seen, and the GPUs that its replicas held: a row for each spell in which both are the same.
create macro mart.service_flow_at(q, ms) as table
with it as (
    select s.workload, s.pool, s.gpus_milli, s.gpus_milli_per_traffic, e.time_ms as over_ms
    from fact.service as s left join fact.workload_end as e on e.workload = s.workload and e.seq <= q
    where s.admitted_seq <= q
),
news as (
    -- least() passes over nulls
    select it.workload, d.time_ms as at_ms, d.seq, 0 as delta_milli,
        least((d.traffic_milli::hugeint * it.gpus_milli_per_traffic + 1000::hugeint * it.gpus_milli - 1)
            // (1000::hugeint * it.gpus_milli) * it.gpus_milli, 16384000)::bigint as need_milli
    from fact.demand as d join it using (workload) where d.seq <= q and (it.over_ms is null or d.time_ms < it.over_ms)
    union all
    select workload, over_ms, 9223372036854775807, 0, 0 from it where over_ms is not null
    union all
    select it.workload, unnest([r.placed_ms, r.end_ms]), 0, unnest([r.gpus_milli, -r.gpus_milli]), null
    from mart.run_at(q, ms) as r join fact.workload as w on w.workload = r.workload join it on w.service = it.workload
),
instant as (
    select workload, at_ms, arg_max(need_milli, seq) filter (need_milli is not null) as need_milli, sum(delta_milli) as delta_milli
    from news group by all
),
spell as (
    select workload, at_ms as from_ms, lead(at_ms, 1, ms) over in_time as to_ms,
        coalesce(last_value(need_milli ignore nulls) over in_time, 0) as need_milli, (sum(delta_milli) over in_time)::bigint as held_milli
    from instant window in_time as (partition by workload order by at_ms)
)
select it.pool, spell.* from spell join it using (workload) where to_ms > from_ms;
