-- What does a budget's period cost, run by run, by what is known at this moment? What is given back counts where it was charged.
-- budget varchar
-- pool varchar
-- from_ms bigint
-- to_ms bigint: not included
with held as (
    select workload, run, payer = 'budget' as funded, sum(gpus_milli * greatest(0, least(end_ms, $to_ms) - greatest(start_ms, $from_ms)))::bigint as inside,
        sum(gpus_milli * greatest(0, end_ms - greatest(start_ms, $to_ms)))::bigint as later
    from mart.alloc_at($seq, $as_of_ms)
    where pool = $pool and (budget = $budget or starts_with(budget, $budget || '/')) and end_ms > $from_ms
    group by all
),
line as (
    -- the latest of a run's time goes back first
    select h.workload, h.run, sum(case when funded then inside else 0 end)::bigint as funded_gpu_us,
        sum(case when funded then 0 else inside end)::bigint as unfunded_gpu_us,
        sum(case when funded then least(inside, greatest(0, r.refunded_gpu_us - later)) else 0 end)::bigint as refunded_gpu_us,
        sum(case when funded then 0 else least(inside, greatest(0, r.unfunded_refunded_gpu_us - later)) end)::bigint as unfunded_refunded_gpu_us
    from held as h join mart.run_at($seq, $as_of_ms) as r using (workload, run)
    group by h.workload, h.run
    having sum(inside) > 0
)
select l.workload, l.run, r.budget, r.principal as "user", w.name, r.kind, r.gpus_milli, r.placed_ms, case when r.is_open then null else r.end_ms end as end_ms,
    r.outcome, l.funded_gpu_us, l.unfunded_gpu_us, l.refunded_gpu_us, l.unfunded_refunded_gpu_us,
    l.funded_gpu_us - l.refunded_gpu_us as cost_gpu_us, r.placed_seq, r.closed_seq
from line as l join mart.run_at($seq, $as_of_ms) as r using (workload, run) join fact.workload as w using (workload)
order by r.placed_ms, r.placed_seq, l.workload, l.run
