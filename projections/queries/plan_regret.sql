-- What did each plan promise of the steps that have passed, and what happened: starts, GPU time of jobs and services, demand not met?
-- plan varchar null: only the one of this id
-- pool varchar null
-- since_ms bigint 0: made since
-- row_limit bigint 50: the newest
with made as (
    select *, least(greatest(($as_of_ms - from_ms) // step_ms, 0), steps) as passed,
        from_ms + least(greatest(($as_of_ms - from_ms) // step_ms, 0), steps) * step_ms as until_ms
    from fact.plan
    where seq <= $seq and ($plan is null or plan = $plan) and ($pool is null or pool = $pool) and time_ms >= $since_ms
    order by seq desc, position desc limit $row_limit
),
job as (
    select m.plan, m.seq, m.from_ms, m.until_ms, m.step_ms, m.passed, j.workload, j.gpus, j.start, j.steps,
        m.from_ms + j.start * m.step_ms as start_ms, m.from_ms + j.start * m.step_ms <= $as_of_ms as due
    from made as m join fact.plan_job as j using (plan) where j.start >= 0
),
run as (select workload, placed_seq, placed_ms, end_ms, gpus_milli from mart.run_at($seq, $as_of_ms)),
began as (
    select j.plan, j.workload, min(r.placed_ms) as placed_ms,
        -- of the steps that have passed
        sum(r.gpus_milli * greatest(least(r.end_ms, j.until_ms) - greatest(r.placed_ms, j.from_ms), 0))::bigint as held_gpu_us
    from job as j join run as r on r.workload = j.workload and r.placed_seq >= j.seq group by all
),
batch as (
    select j.plan, count(*) filter (due) as due, count(b.workload) filter (due) as started,
        count(*) filter (due and b.workload is null and e.workload is not null) as withdrawn,
        -- greatest() passes over nulls
        floor(avg(greatest(b.placed_ms - j.start_ms, 0) * 1000 // j.step_ms) filter (due and b.placed_ms is not null))::bigint as later_mean_milli,
        (max(greatest(b.placed_ms - j.start_ms, 0) * 1000 // j.step_ms) filter (due and b.placed_ms is not null))::bigint as later_max_milli,
        coalesce(sum(j.gpus * 1000 * j.step_ms * greatest(least(j.start + j.steps, j.passed) - j.start, 0)), 0)::bigint as promised_gpu_us,
        coalesce(sum(b.held_gpu_us), 0)::bigint as held_gpu_us
    from job as j left join began as b using (plan, workload)
    left join (select workload from fact.workload_end where seq <= $seq) as e using (workload)
    group by j.plan
),
promise as (
    select m.plan, sum(s.held * 1000 * m.step_ms)::bigint as promised_gpu_us,
        sum(greatest(s.needs - s.held, 0) * 1000 * m.step_ms)::bigint as unmet_promised_gpu_us
    from made as m join fact.plan_service as s on s.plan = m.plan and s.step < m.passed group by m.plan
),
served as (
    select m.plan, sum(f.held_milli * f.part_ms)::bigint as held_gpu_us,
        sum(greatest(f.need_milli - f.held_milli, 0) * f.part_ms)::bigint as unmet_gpu_us
    from made as m join lateral (
        select held_milli, need_milli, least(to_ms, m.until_ms) - greatest(from_ms, m.from_ms) as part_ms
        from mart.service_flow_at($seq, $as_of_ms) as f
        where f.from_ms < m.until_ms and f.to_ms > m.from_ms and f.pool = m.pool
            and f.workload in (select workload from fact.plan_service as s where s.plan = m.plan and s.step = 0)
    ) as f on true
    group by m.plan
)
select m.plan, m.seq, m.time_ms, m.pool, m.passed as steps_passed, coalesce(b.due, 0) as jobs_due, coalesce(b.started, 0) as jobs_started,
    coalesce(b.withdrawn, 0) as jobs_withdrawn, b.later_mean_milli as later_mean_steps_milli, b.later_max_milli as later_max_steps_milli,
    coalesce(b.promised_gpu_us, 0) as jobs_promised_gpu_us, coalesce(b.held_gpu_us, 0) as jobs_held_gpu_us,
    coalesce(p.promised_gpu_us, 0) as services_promised_gpu_us, coalesce(v.held_gpu_us, 0) as services_held_gpu_us,
    coalesce(p.unmet_promised_gpu_us, 0) as unmet_promised_gpu_us, coalesce(v.unmet_gpu_us, 0) as unmet_gpu_us
from made as m left join batch as b using (plan) left join promise as p using (plan) left join served as v using (plan)
order by m.seq desc, m.plan
