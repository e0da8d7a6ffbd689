-- How long did workloads wait from submission to their first start, by size and over all?
-- since_ms bigint 0: submitted since
-- budget varchar null: this budget and those below it
with first_start as (
    select workload, min(placed_ms) as placed_ms from mart.run_at($seq, $as_of_ms) group by workload
),
asked as (
    select w.gpus_milli, f.placed_ms - w.time_ms as wait_ms, f.placed_ms is null as unstarted,
        f.placed_ms is null and e.workload is null as waiting
    from fact.workload as w
    left join first_start as f using (workload)
    left join (select workload from fact.workload_end where seq <= $seq) as e using (workload)
    where w.workload not in (select workload from fact.service) and w.admitted_seq <= $seq and w.admitted_seq > 0 and w.time_ms >= $since_ms
        and ($budget is null or w.budget = $budget or starts_with(w.budget, $budget || '/'))
)
select gpus_milli, count(*) as submitted, count(wait_ms) as started, count(*) filter (waiting) as waiting,
    quantile_disc(wait_ms, 0.5)::bigint as p50_ms, quantile_disc(wait_ms, 0.9)::bigint as p90_ms,
    quantile_disc(wait_ms, 0.99)::bigint as p99_ms, max(wait_ms)::bigint as max_ms
from asked
group by grouping sets ((gpus_milli), ())
order by gpus_milli nulls last
