-- Is allocated + idle + out of service = installed, per pool and day, with idle measured as what nothing covers?
with gpu as (
    select node, pool, unnest(range(gpus)) as gpu, from_ms, to_ms from mart.supply_at($seq, $as_of_ms) where to_ms > from_ms
),
held as (
    select pool, node, unnest(gpus) as gpu, milli_each, start_ms, end_ms from mart.alloc_at($seq, $as_of_ms) where end_ms > start_ms
),
out_gpu as (
    select pool, node, unnest(gpus) as gpu, from_ms, to_ms from mart.out_at($seq, $as_of_ms) where to_ms > from_ms
),
edge as (
    select pool, node, gpu, from_ms as at_ms, 1 as installed, 0 as held, 0 as is_out from gpu
    union all select pool, node, gpu, to_ms, -1, 0, 0 from gpu
    union all select pool, node, gpu, start_ms, 0, milli_each, 0 from held
    union all select pool, node, gpu, end_ms, 0, -milli_each, 0 from held
    union all select pool, node, gpu, from_ms, 0, 0, 1 from out_gpu
    union all select pool, node, gpu, to_ms, 0, 0, -1 from out_gpu
    -- every midnight is an edge, so that no piece crosses one
    union all select pool, node, gpu, unnest(range((from_ms // 86400000 + 1) * 86400000, to_ms, 86400000)), 0, 0, 0 from gpu
),
level as (
    select pool, node, gpu, at_ms, sum(sum(installed)) over w as installed, sum(sum(held)) over w as held, sum(sum(is_out)) over w as is_out,
        lead(at_ms) over w as until_ms
    from edge group by pool, node, gpu, at_ms
    window w as (partition by pool, node, gpu order by at_ms)
),
daily as (
    select at_ms // 86400000 as day, pool,
        sum(installed * 1000 * (until_ms - at_ms))::bigint as installed_gpu_us,
        sum(held * (until_ms - at_ms))::bigint as allocated_gpu_us,
        sum(case when is_out > 0 and installed > 0 then greatest(0, 1000 - held) else 0 end * (until_ms - at_ms))::bigint as down_gpu_us,
        sum(case when is_out = 0 and installed > 0 then greatest(0, 1000 - held) else 0 end * (until_ms - at_ms))::bigint as idle_gpu_us
    from level where until_ms is not null group by all
)
select * from daily where allocated_gpu_us + down_gpu_us + idle_gpu_us <> installed_gpu_us
