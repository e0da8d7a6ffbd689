-- Which jobs does a plan start when and on which block, and which had waited too long?
-- plan varchar null: its id; else the last of each pool
-- pool varchar null
select j.plan, j.pool, j.workload, w.name, w.budget, w.principal, w.gpus_milli, j.gpus, j.first, j.start, j.steps,
    case when j.start >= 0 then p.from_ms + j.start * p.step_ms end as start_ms,
    case when j.start >= 0 then p.from_ms + (j.start + j.steps) * p.step_ms end as end_ms,
    p.time_ms - w.time_ms as waited_ms, j.late
from mart.plan_at($seq, $plan, $pool) as p join fact.plan_job as j using (plan) left join fact.workload as w on w.workload = j.workload
order by j.pool, j.start < 0, j.start, j.first, j.workload
