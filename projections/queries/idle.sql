-- Which runs hold GPUs and do no work, since when, and what has that cost so far?
-- budget varchar '': only this budget and those below it
with said as (
    -- what was last said of each run
    select d.workload, d.run, arg_max((d.body->>'$.since_ms')::bigint, (d.seq, d.position)) as since_ms,
        arg_max((d.body->>'$.limit_ms')::bigint, (d.seq, d.position)) as limit_ms, max(d.seq) as said_seq
    from fact.decision as d
    where d.type = 'run.idle' and d.seq <= $seq
    group by d.workload, d.run
)
select r.workload, r.run, r.pool, r.budget, r.principal, r.gpus_milli, held.payer, s.since_ms, $as_of_ms - s.since_ms as idle_ms,
    (r.gpus_milli * ($as_of_ms - s.since_ms))::bigint as idle_gpu_us, s.limit_ms, r.protected_until_ms, s.said_seq
from mart.run_at($seq, $as_of_ms) as r
join said as s using (workload, run)
join (select workload, run, any_value(payer) as payer from mart.held_at($seq) group by all) as held using (workload, run)
where r.is_open and s.since_ms > 0 and ($budget = '' or r.budget = $budget or starts_with(r.budget, $budget || '/'))
order by idle_gpu_us desc, r.workload, r.run
