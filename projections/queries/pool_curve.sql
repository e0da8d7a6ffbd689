-- How was a pool's GPU time spent, by step: services and what they needed, other work, idle, out of service?
-- pool varchar
-- step_ms bigint 3600000
-- since_ms bigint 0
with slice as (
    select from_ms, to_ms, gpus * 1000 as milli, 'installed' as what from mart.supply_at($seq, $as_of_ms) where pool = $pool
    union all
    select a.start_ms, a.end_ms, a.gpus_milli, if(w.service <> '', 'services', 'others')
    from mart.alloc_at($seq, $as_of_ms) as a join fact.workload as w on w.workload = a.workload where a.pool = $pool
    union all
    select from_ms, to_ms, len(gpus) * 1000, 'out' from mart.out_at($seq, $as_of_ms) where pool = $pool
    union all
    -- a GPU out of service that a run still holds counts as held
    select greatest(o.from_ms, a.start_ms), least(o.to_ms, a.end_ms), len(list_intersect(o.gpus, a.gpus)) * a.milli_each, 'both'
    from mart.out_at($seq, $as_of_ms) as o join mart.alloc_at($seq, $as_of_ms) as a
        on a.node = o.node and a.start_ms < o.to_ms and a.end_ms > o.from_ms and len(list_intersect(o.gpus, a.gpus)) > 0
    where o.pool = $pool
    union all
    select from_ms, to_ms, need_milli, 'needed' from mart.service_flow_at($seq, $as_of_ms) where pool = $pool
    union all
    select from_ms, to_ms, greatest(need_milli - held_milli, 0), 'unmet' from mart.service_flow_at($seq, $as_of_ms) where pool = $pool
),
part as (
    select what, step, milli * (least(to_ms, (step + 1) * $step_ms) - greatest(from_ms, step * $step_ms, $since_ms)) as gpu_us
    from (
        select *, unnest(range(greatest(from_ms, $since_ms) // $step_ms, (to_ms - 1) // $step_ms + 1)) as step
        from slice where to_ms > greatest(from_ms, $since_ms)
    )
)
select step * $step_ms as from_ms,
    coalesce(sum(gpu_us) filter (what = 'installed'), 0)::bigint as installed_gpu_us,
    coalesce(sum(gpu_us) filter (what = 'needed'), 0)::bigint as needed_gpu_us,
    coalesce(sum(gpu_us) filter (what = 'services'), 0)::bigint as services_gpu_us,
    coalesce(sum(gpu_us) filter (what = 'unmet'), 0)::bigint as unmet_gpu_us,
    coalesce(sum(gpu_us) filter (what = 'others'), 0)::bigint as others_gpu_us,
    coalesce(sum(case when what = 'out' then gpu_us when what = 'both' then -gpu_us end), 0)::bigint as down_gpu_us,
    coalesce(sum(case when what in ('installed', 'both') then gpu_us when what in ('services', 'others', 'out') then -gpu_us end), 0)::bigint
        as idle_gpu_us
from part
group by step
order by step
