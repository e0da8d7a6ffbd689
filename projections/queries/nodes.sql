-- How is each node: in service or not and why, what runs on it, how busy is it?
-- pool varchar null
-- node varchar null
with member as (
    select node, pool, gpus, agent, rack, time_ms, seq from dim.node where seq <= $seq and coalesce(valid_to_seq > $seq, true)
),
out_now as (
    select node,
        max(case when state = 'suspended' then 'suspended' end) as suspended, max(case when state = 'cordoned' then 'cordoned' end) as cordoned,
        max(case when state = 'broken' then gpus end) as gpus_broken,
        coalesce(max(case when state = 'suspended' then reason end), max(case when state = 'cordoned' then reason end),
            max(case when state = 'broken' then reason end)) as reason,
        coalesce(max(case when state = 'suspended' then principal end), max(case when state = 'cordoned' then principal end),
            max(principal)) as principal,
        coalesce(max(case when state <> 'broken' then from_ms end), min(from_ms)) as since_ms
    from mart.out_at($seq, $as_of_ms) where is_open group by node
),
drain as (
    select node, deadline_ms, force, reason, principal, first_ms from mart.drain_at($seq) where is_open
),
held as (
    select node, sum(gpus_milli)::bigint as used_milli, list(distinct workload || '#' || run order by workload || '#' || run) as runs
    from mart.held_at($seq) group by node
),
heard as (
    select node, max(last_ms) as last_beat_ms,
        arg_max(busy_gpu_us, last_seq) as busy_gpu_us, arg_max(covered_gpu_us, last_seq) as covered_gpu_us
    from mart.heard_at($seq) group by node
)
select m.node, m.pool, m.gpus,
    case when m.gpus = 0 then 'left' when o.suspended is null and d.node is not null
        then case when d.deadline_ms > $as_of_ms or h.runs is not null then 'draining' else 'drained' end
        else coalesce(o.suspended, o.cordoned, 'in service') end as state,
    case when o.suspended is null and d.node is not null then d.reason else o.reason end as reason,
    case when o.suspended is null and d.node is not null then d.principal else o.principal end as principal,
    case when m.gpus = 0 then m.time_ms when o.suspended is null and d.node is not null then d.first_ms else o.since_ms end as since_ms,
    d.deadline_ms as drain_by_ms, d.force as drain_force,
    coalesce(o.gpus_broken, []) as gpus_broken,
    coalesce(h.used_milli, 0) as used_milli, m.gpus * 1000 - coalesce(h.used_milli, 0) as unused_milli, coalesce(h.runs, []) as runs,
    b.last_beat_ms, mart.ppm(b.busy_gpu_us, b.covered_gpu_us) as busy_ppm, m.agent, m.rack
from member as m
left join out_now as o using (node)
left join drain as d using (node)
left join held as h using (node)
left join heard as b using (node)
where ($pool is null or m.pool = $pool) and ($node is null or m.node = $node)
order by m.pool, m.node
