-- What is different in a later plan: who starts earlier or later, who is new in it, who is gone from it and why?
-- old varchar
-- new varchar
with before as (select * from fact.plan where plan = $old and seq <= $seq),
after as (select * from fact.plan where plan = $new and seq <= $seq),
was as (
    select j.workload, j.start, b.from_ms + j.start * b.step_ms as start_ms from fact.plan_job as j join before as b using (plan) where j.start >= 0
),
becomes as (
    select j.workload, j.start, a.from_ms + j.start * a.step_ms as start_ms from fact.plan_job as j join after as a using (plan) where j.start >= 0
),
began as (
    -- from the old plan on, and before the new one
    select r.workload, min(r.placed_ms) as placed_ms from mart.run_at($seq, $as_of_ms) as r, before as b, after as a
    where r.placed_seq >= b.seq and r.placed_seq < a.seq group by r.workload
),
ended as (
    select e.workload from fact.workload_end as e, after as a where e.seq <= a.seq
)
select workload, w.name, w.budget, w.gpus_milli, was.start_ms as old_start_ms, becomes.start_ms as new_start_ms,
    case when was.workload is null and w.admitted_seq > b.seq then 'new'
        when was.workload is null then 'planned'
        when becomes.workload is null and began.workload is not null then 'started'
        when becomes.workload is null and ended.workload is not null then 'over'
        when becomes.workload is null then 'gone'
        -- plans begin when they are made: less than a step is no change
        when becomes.start_ms <= was.start_ms - a.step_ms then 'earlier'
        when becomes.start_ms >= was.start_ms + a.step_ms then 'later'
        else 'same' end as change,
    began.placed_ms, becomes.start_ms - was.start_ms as shift_ms
from before as b, after as a, was full join becomes using (workload) left join fact.workload as w using (workload)
left join began using (workload) left join ended using (workload)
order by change, coalesce(becomes.start_ms, was.start_ms), workload
