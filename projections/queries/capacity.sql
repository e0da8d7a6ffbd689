-- How was each pool's installed GPU time spent, by day (UTC): allocated, out of service, idle?
-- pool varchar null
with slice as (
    select pool, from_ms, to_ms, gpus * 1000 as milli, 'installed' as what from mart.supply_at($seq, $as_of_ms)
    union all
    select pool, start_ms, end_ms, gpus_milli, case when payer = 'budget' then 'funded' else 'unfunded' end
    from mart.alloc_at($seq, $as_of_ms)
    union all
    select pool, from_ms, to_ms, len(gpus) * 1000, 'out' from mart.out_at($seq, $as_of_ms)
    union all
    -- a GPU out of service that a run still holds counts as allocated
    select o.pool, greatest(o.from_ms, a.start_ms), least(o.to_ms, a.end_ms), len(list_intersect(o.gpus, a.gpus)) * a.milli_each, 'both'
    from mart.out_at($seq, $as_of_ms) as o join mart.alloc_at($seq, $as_of_ms) as a
        on a.node = o.node and a.start_ms < o.to_ms and a.end_ms > o.from_ms and len(list_intersect(o.gpus, a.gpus)) > 0
),
daily as (
    select pool, what, day, milli * (least(to_ms, (day + 1) * 86400000) - greatest(from_ms, day * 86400000)) as gpu_us
    from (select *, unnest(range(from_ms // 86400000, (to_ms - 1) // 86400000 + 1)) as day from slice where to_ms > from_ms)
)
select strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') as day, pool,
    sum(case when what = 'installed' then gpu_us else 0 end)::bigint as installed_gpu_us,
    sum(case when what = 'funded' then gpu_us else 0 end)::bigint as funded_gpu_us,
    sum(case when what = 'unfunded' then gpu_us else 0 end)::bigint as unfunded_gpu_us,
    sum(case when what = 'out' then gpu_us when what = 'both' then -gpu_us else 0 end)::bigint as down_gpu_us,
    sum(case when what = 'installed' or what = 'both' then gpu_us else -gpu_us end)::bigint as idle_gpu_us
from daily
where $pool is null or pool = $pool
group by all
order by 1, 2
