-- When are how many GPUs expected to idle?
-- plan varchar null: its id; else the last of each pool
-- pool varchar null
select i.plan, i.pool, i.from_ms, i.until_ms, i.gpus, i.gpus * 1000 * (i.until_ms - i.from_ms) as idle_gpu_us
from mart.plan_at($seq, $plan, $pool) as p join fact.plan_idle as i using (plan)
order by i.pool, i.from_ms
