-- Do the core's books add up after every cycle: supply = out of service + idle + unfunded + funded, and does supply never shrink?
select seq, pool, supply_gpu_us, down_gpu_us, idle_gpu_us, unfunded_gpu_us, funded_gpu_us, before_gpu_us
from (select *, lag(supply_gpu_us, 1, 0) over (partition by pool order by seq) as before_gpu_us from fact.books where seq <= $seq)
where supply_gpu_us <> down_gpu_us + idle_gpu_us + unfunded_gpu_us + funded_gpu_us or supply_gpu_us < before_gpu_us
