-- What is each service to hold by step, what does it need, and what is not covered?
-- plan varchar null: its id; else the last of each pool
-- pool varchar null
select s.plan, s.pool, s.workload, s.step, p.from_ms + s.step * p.step_ms as from_ms, p.from_ms + (s.step + 1) * p.step_ms as until_ms,
    s.held, s.needs, s.median, greatest(s.needs - s.held, 0) as uncovered
from mart.plan_at($seq, $plan, $pool) as p join fact.plan_service as s using (plan)
order by s.pool, s.workload, s.step
