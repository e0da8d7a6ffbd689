-- How did each pool do on each day (UTC): was it up, was it assigned, did what ended lead to something, did the GPUs compute?
-- pool varchar null
-- since_ms bigint 0
with capacity as (
    select * from mart.capacity_days($seq, $as_of_ms)
),
heard as (
    select bucket_ms // 86400000 as day, pool, sum(covered_gpu_us)::bigint as covered_gpu_us, sum(busy_gpu_us)::bigint as busy_gpu_us
    from mart.heard_at($seq) group by all
),
ended as (
    -- a run counts on the day it ended
    select end_ms // 86400000 as day, pool, sum(charged_gpu_us + unfunded_gpu_us)::bigint as ended_gpu_us, sum(useful_gpu_us)::bigint as useful_gpu_us
    from fact.run_closed where closed_seq <= $seq group by all
)
select strftime(make_timestamp(c.day * 86400000000), '%Y-%m-%d') as day, c.pool,
    mart.ppm(installed_gpu_us - down_gpu_us, installed_gpu_us) as availability_ppm,
    mart.ppm(funded_gpu_us + unfunded_gpu_us, installed_gpu_us - down_gpu_us) as occupancy_ppm,
    mart.ppm(useful_gpu_us, ended_gpu_us) as impact_ppm,
    -- of what heartbeats vouch for; coverage says how much of the installed time that is
    mart.ppm(busy_gpu_us::hugeint * installed_gpu_us, (funded_gpu_us + unfunded_gpu_us)::hugeint * covered_gpu_us) as utilization_ppm,
    mart.ppm(covered_gpu_us, installed_gpu_us) as coverage_ppm,
    installed_gpu_us, down_gpu_us, funded_gpu_us, unfunded_gpu_us, idle_gpu_us, coalesce(busy_gpu_us, 0) as busy_gpu_us,
    coalesce(covered_gpu_us, 0) as covered_gpu_us, coalesce(ended_gpu_us, 0) as ended_gpu_us, coalesce(useful_gpu_us, 0) as useful_gpu_us
from capacity as c left join heard as h using (day, pool) left join ended as e using (day, pool)
where ($pool is null or c.pool = $pool) and (c.day + 1) * 86400000 > $since_ms
order by c.day, c.pool
