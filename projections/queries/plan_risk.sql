-- How sure is a plan, by step: what services need at the quantile kept ready for and at the median, what they hold, what is not covered?
-- plan varchar null: its id; else the last of each pool
-- pool varchar null
with it as (select *, unnest(range(steps)) as step from mart.plan_at($seq, $plan, $pool)),
service as (
    select plan, step, sum(needs)::bigint as needs, sum(median)::bigint as median, sum(held)::bigint as held,
        sum(greatest(needs - held, 0))::bigint as uncovered
    from fact.plan_service group by all
),
batch as (
    -- a block counts at each of its steps
    select plan, step, sum(gpus)::bigint as planned
    from (select j.plan, j.gpus, unnest(range(j.start, least(j.start + j.steps, p.steps))) as step
        from fact.plan_job as j join mart.plan_at($seq, $plan, $pool) as p using (plan) where j.start >= 0)
    group by all
)
select it.plan, it.pool, it.step, it.from_ms + it.step * it.step_ms as from_ms, coalesce(s.needs, 0) as needs,
    coalesce(s.median, 0) as median, coalesce(s.held, 0) as held, coalesce(s.uncovered, 0) as uncovered,
    case when s.needs > 0 then mart.ppm(s.uncovered, s.needs) else 0 end as risk_ppm, coalesce(b.planned, 0) as planned,
    coalesce(i.gpus, 0) as idle
from it left join service as s using (plan, step) left join batch as b using (plan, step)
left join fact.plan_idle as i on i.plan = it.plan and i.from_ms <= it.from_ms + it.step * it.step_ms and i.until_ms > it.from_ms + it.step * it.step_ms
order by it.pool, it.step
