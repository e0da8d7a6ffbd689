-- Is allocated + idle + out of service = installed, per pool and day, with idle measured as what nothing covers?
with place as (
    -- a number for each node of each pool: sorting by it costs a third of sorting by names
    select node, pool, row_number() over (order by node, pool) * 256 as place
    from (
        select node, pool from mart.supply_at($seq, $as_of_ms)
        union
        select node, pool from mart.alloc_at($seq, $as_of_ms)
        union
        select node, pool from mart.out_at($seq, $as_of_ms)
    )
),
-- what begins and ends, in one number: installed x 10^12 + out of service x 10^6 + thousandths held
gpu as (
    select place + unnest(range(gpus)) as gpu, from_ms, to_ms, 1000000000000 as weight
    from mart.supply_at($seq, $as_of_ms) join place using (node, pool) where to_ms > from_ms
    union all
    select place + unnest(gpus), start_ms, end_ms, milli_each
    from mart.alloc_at($seq, $as_of_ms) join place using (node, pool) where end_ms > start_ms
    union all
    select place + unnest(gpus), from_ms, to_ms, 1000000
    from mart.out_at($seq, $as_of_ms) join place using (node, pool) where to_ms > from_ms
),
edge as (
    select gpu, from_ms as at_ms, weight from gpu
    union all
    select gpu, to_ms, -weight from gpu
    union all
    -- every midnight is an edge, so that no piece crosses one
    select gpu, unnest(range((from_ms // 86400000 + 1) * 86400000, to_ms, 86400000)), 0 from gpu where weight = 1000000000000
),
level as (
    -- edges of one instant come in any order: between them lies no time
    select gpu, at_ms, sum(weight) over w as level, lead(at_ms) over w - at_ms as length_ms
    from edge window w as (partition by gpu order by at_ms rows unbounded preceding)
),
piece as (
    select gpu, at_ms // 86400000 as day, length_ms, (level // 1000000000000)::bigint as installed, (level % 1000000)::bigint as held,
        (level // 1000000 % 1000000)::bigint as is_out
    from level where length_ms > 0
),
daily as (
    select day, gpu // 256 * 256 as place,
        sum(installed * 1000 * length_ms)::bigint as installed_gpu_us,
        sum(held * length_ms)::bigint as allocated_gpu_us,
        sum(case when is_out > 0 and installed > 0 then greatest(0, 1000 - held) else 0 end * length_ms)::bigint as down_gpu_us,
        sum(case when is_out = 0 and installed > 0 then greatest(0, 1000 - held) else 0 end * length_ms)::bigint as idle_gpu_us
    from piece group by all
)
select day, pool, sum(installed_gpu_us)::bigint as installed_gpu_us, sum(allocated_gpu_us)::bigint as allocated_gpu_us,
    sum(down_gpu_us)::bigint as down_gpu_us, sum(idle_gpu_us)::bigint as idle_gpu_us
from daily join place using (place)
group by day, pool
having sum(allocated_gpu_us + down_gpu_us + idle_gpu_us) <> sum(installed_gpu_us)
