-- What was submitted, how long did what ended run, and what was last forecast of what waits or runs?
-- since_ms bigint 0: submitted since; what is not over is told of whenever it came
with ended as (
    select workload, outcome, time_ms from fact.workload_end where seq <= $seq
),
last_run as (
    select workload, arg_max(resume_from_ms, run) as resume_from_ms, arg_max(started_ms, run) as started_ms,
        arg_max(end_ms, run) as end_ms, arg_max(is_open, run) as is_open
    from mart.run_at($seq, $as_of_ms) group by workload
),
newest as (
    select target, max(seq) as seq from fact.forecast where of = 'runtime' and seq <= $seq group by target
),
said as (
    select f.target as workload, min(f.model) as model, string_agg(f.value::varchar, ',' order by f.quantile_ppm) as forecast_ms
    from fact.forecast as f join newest using (target, seq) group by f.target
)
select w.workload, w.time_ms as submitted_ms, w.principal, w.budget, w.kind, w.name, w.gpus_milli, w.nodes, w.priority,
    w.expected_runtime_ms, w.min_runtime_ms, w.checkpoint_interval_ms, w.command,
    coalesce(json_extract_string(e.body, '$.data.env.APPORTION_VARIANT'), '') as variant,
    d.outcome, d.time_ms as ended_ms,
    -- the useful time of the run with which it ended: what was done twice counts once
    if(d.outcome is not null and r.started_ms > 0, r.resume_from_ms + r.end_ms - r.started_ms, null)::bigint as runtime_ms,
    if(r.is_open, r.resume_from_ms + if(r.started_ms > 0, $as_of_ms - r.started_ms, 0), 0)::bigint as elapsed_ms,
    s.model, s.forecast_ms
from fact.workload as w
left join raw.event_log as e on e.seq = w.seq
left join ended as d using (workload)
left join last_run as r using (workload)
left join said as s using (workload)
where w.service = '' and w.admitted_seq > 0 and greatest(w.seq, w.admitted_seq) <= $seq
    and w.kind in ('training', 'batch_inference', 'quantization')
    and (w.time_ms >= $since_ms or d.outcome is null)
order by w.time_ms, w.workload
