-- What auditors sum up: exact days, capacity, the pillars, idle holds, and what became of GPUs that were freed by force. As before, all
-- of it is so at sequence q, whose cycle was at ms.

-- GPU time by UTC day. Most intervals stay within one; only the others are cut at midnight.
create macro mart.usage_days(q, ms) as table
select start_ms // 86400000 as day, pool, budget, principal, kind, payer, gpus_milli * (end_ms - start_ms) as gpu_us
from mart.alloc_at(q, ms)
where end_ms > start_ms and start_ms // 86400000 = (end_ms - 1) // 86400000
union all
select day, pool, budget, principal, kind, payer,
    gpus_milli * (least(end_ms, (day + 1) * 86400000) - greatest(start_ms, day * 86400000))
from (
    select *, unnest(range(start_ms // 86400000, (end_ms - 1) // 86400000 + 1)) as day
    from mart.alloc_at(q, ms)
    where end_ms > start_ms and start_ms // 86400000 <> (end_ms - 1) // 86400000
);

-- Of each pool's installed GPU time on each day: allocated by who paid, out of service, idle. A GPU out of service that a run still
-- holds counts as allocated.
create macro mart.capacity_days(q, ms) as table
with slice as (
    select pool, from_ms, to_ms, gpus * 1000 as milli, 'installed' as what from mart.supply_at(q, ms)
    union all
    select pool, from_ms, to_ms, len(gpus) * 1000, 'out' from mart.out_at(q, ms)
    union all
    select o.pool, greatest(o.from_ms, a.start_ms), least(o.to_ms, a.end_ms), len(list_intersect(o.gpus, a.gpus)) * a.milli_each, 'both'
    from mart.out_at(q, ms) as o join mart.alloc_at(q, ms) as a
        on a.node = o.node and a.start_ms < o.to_ms and a.end_ms > o.from_ms and len(list_intersect(o.gpus, a.gpus)) > 0
),
daily as (
    select pool, what, day, milli * (least(to_ms, (day + 1) * 86400000) - greatest(from_ms, day * 86400000)) as gpu_us
    from (select *, unnest(range(from_ms // 86400000, (to_ms - 1) // 86400000 + 1)) as day from slice where to_ms > from_ms)
    union all
    select pool, case when payer = 'budget' then 'funded' else 'unfunded' end, day, gpu_us from mart.usage_days(q, ms)
)
select day, pool,
    sum(case when what = 'installed' then gpu_us else 0 end)::bigint as installed_gpu_us,
    sum(case when what = 'funded' then gpu_us else 0 end)::bigint as funded_gpu_us,
    sum(case when what = 'unfunded' then gpu_us else 0 end)::bigint as unfunded_gpu_us,
    sum(case when what = 'out' then gpu_us when what = 'both' then -gpu_us else 0 end)::bigint as down_gpu_us,
    sum(case when what = 'installed' or what = 'both' then gpu_us else -gpu_us end)::bigint as idle_gpu_us
from daily group by day, pool;

-- A run's time without work, as the core said it: from since_ms on, to when it worked again or ended. It is said once it has lasted for
-- the pool's limit; a shorter spell is no idle hold.
create macro mart.idle_spells_at(q, ms) as table
with said as (
    select workload, run, seq, position, time_ms, (body->>'$.since_ms')::bigint as since_ms, (body->>'$.limit_ms')::bigint as limit_ms,
        lead(time_ms) over turn as next_ms, lag((body->>'$.since_ms')::bigint) over turn as before_ms
    from fact.decision where type = 'run.idle' and seq <= q
    window turn as (partition by workload, run order by seq, position)
),
spell as (
    select r.workload, r.run, r.pool, r.budget, r.principal, r.kind, r.gpus_milli, s.seq as said_seq, s.limit_ms,
        case when s.before_ms = s.since_ms then s.time_ms else s.since_ms end as from_ms, least(coalesce(s.next_ms, r.end_ms), r.end_ms) as to_ms,
        r.is_open and s.next_ms is null as is_open
    from said as s join mart.run_at(q, ms) as r using (workload, run)
    where s.since_ms > 0
)
select s.*, (s.gpus_milli * (s.to_ms - s.from_ms))::bigint as idle_gpu_us, coalesce(sum(
    case when a.payer = 'budget' then a.gpus_milli * (least(a.end_ms, s.to_ms) - greatest(a.start_ms, s.from_ms)) else 0 end), 0)::bigint as paid_gpu_us
from spell as s left join mart.alloc_at(q, ms) as a
    on a.workload = s.workload and a.run = s.run and a.start_ms < s.to_ms and a.end_ms > s.from_ms
where s.to_ms > s.from_ms
group by all;

-- What became of the GPUs that each certificate freed: did the beneficiary's next run start on them? They are held for it meanwhile.
create macro mart.certificate_use_at(q, ms) as table
with granted as (
    select c.seq, c.position, c.time_ms, c.victim, c.victim_run, c.victim_budget, c.victim_gpus_milli, c.beneficiary, c.beneficiary_budget,
        c.lost_gpu_us, c.policy, v.pool, case when v.is_open then null else v.end_ms end as freed_ms, v.outcome as victim_outcome
    from fact.certificate as c join mart.run_at(q, ms) as v on v.workload = c.victim and v.run = c.victim_run
    where c.seq <= q
),
started as (
    select g.seq, g.position, min(b.placed_seq) as placed_seq
    from granted as g join mart.run_at(q, ms) as b on b.workload = g.beneficiary and b.placed_seq >= g.seq
    group by g.seq, g.position
),
took as (
    select s.seq, s.position, s.placed_seq, a.start_ms, a.node, unnest(a.gpus) as gpu, a.milli_each
    from started as s join granted as g using (seq, position)
    join mart.alloc_at(q, ms) as a on a.workload = g.beneficiary and a.open_seq = s.placed_seq
),
freed as (
    select g.seq, g.position, a.node, unnest(a.gpus) as gpu, a.milli_each
    from granted as g join mart.alloc_at(q, ms) as a
        on a.workload = g.victim and a.run = g.victim_run and a.open_seq <= g.seq and (a.is_open or a.close_seq > g.seq)
),
used as (
    select f.seq, f.position, sum(f.milli_each)::bigint as freed_milli,
        sum(case when t.milli_each is null then 0 else least(f.milli_each, t.milli_each) end)::bigint as used_milli
    from freed as f left join took as t using (seq, position, node, gpu)
    group by f.seq, f.position
),
over as (
    -- withdrawn, or its hold given up, before it started
    select g.seq, g.position, min(e.seq) as over_seq
    from granted as g join (
        select workload, seq from fact.workload_end where seq <= q
        union all
        select workload, seq from fact.reservation where seq <= q and len(from_json(pieces, '["JSON"]')) = 0
    ) as e on e.workload = g.beneficiary and e.seq > g.seq
    group by g.seq, g.position
)
select g.*, u.freed_milli, u.used_milli, u.freed_milli - u.used_milli as unused_milli, t.placed_seq as beneficiary_placed_seq,
    t.start_ms as beneficiary_placed_ms, o.over_seq,
    case when t.placed_seq is not null and (o.over_seq is null or t.placed_seq <= o.over_seq) then
            case when u.used_milli = u.freed_milli then 'used' when u.used_milli > 0 then 'partly used' else 'started elsewhere' end
        when o.over_seq is not null then 'given up' else 'still held' end as became,
    -- GPU time from the victim's end to the beneficiary's start
    (g.victim_gpus_milli * greatest(0, least(coalesce(t.start_ms, ms), ms) - g.freed_ms))::bigint as waited_gpu_us
from granted as g join used as u using (seq, position)
left join (select seq, position, placed_seq, min(start_ms) as start_ms from took group by all) as t using (seq, position)
left join over as o using (seq, position);
