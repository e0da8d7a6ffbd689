-- How was each pool's installed GPU time spent, by day (UTC): allocated, out of service, idle?
-- pool varchar null
select strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') as day, pool, installed_gpu_us, funded_gpu_us, unfunded_gpu_us, down_gpu_us,
    idle_gpu_us
from mart.capacity_days($seq, $as_of_ms)
where $pool is null or pool = $pool
order by 1, 2
