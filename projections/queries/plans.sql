-- Which plans were made, newest first, of what and how good?
-- pool varchar null
-- since_ms bigint 0
-- row_limit bigint 50
with made as (
    select * from fact.plan where seq <= $seq and ($pool is null or pool = $pool) and time_ms >= $since_ms
    order by seq desc, position desc limit $row_limit
)
select m.plan, m.seq, m.time_ms, m.pool, m.step_ms, m.steps, m.waiting,
    count(j.plan) filter (j.start >= 0) as jobs, count(j.plan) filter (j.start = 0) as starts_now, count(j.plan) filter (j.late) as late,
    m.unmet_gpu_steps, m.objective, m.bound, case when m.bound > 0 then mart.ppm(m.objective, m.bound) end as of_bound_ppm
from made as m left join fact.plan_job as j using (plan)
group by all
order by m.seq desc, m.plan
