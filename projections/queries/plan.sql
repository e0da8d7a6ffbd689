-- What is planned for the hours to come: the last plan of each pool, or the one of this id?
-- plan varchar null: its id
-- pool varchar null
select p.plan, p.seq, p.time_ms, p.pool, p.from_ms, p.from_ms + p.steps * p.step_ms as until_ms, p.step_ms, p.steps, p.gpus,
    p.objective, p.bound, case when p.bound > 0 then mart.ppm(p.objective, p.bound) end as of_bound_ppm, p.candidates,
    p.unmet_gpu_steps, p.waiting, coalesce(j.jobs, 0) as jobs, coalesce(j.starts_now, 0) as starts_now, coalesce(j.late, 0) as late,
    (select count(distinct workload) from fact.plan_service as s where s.plan = p.plan) as services,
    -- the one that runs as of then; at most the last
    least(($as_of_ms - p.from_ms) // p.step_ms, p.steps - 1) as step_now
from mart.plan_at($seq, $plan, $pool) as p left join (
    select plan, count(*) filter (start >= 0) as jobs, count(*) filter (start = 0) as starts_now, count(*) filter (late) as late
    from fact.plan_job group by plan
) as j using (plan)
order by p.pool
