-- Of the jobs of one budget and size that waited as long as this one has, how much longer did they wait?
-- budget varchar: the budget itself
-- gpus_milli bigint
-- waited_ms bigint 0: how long it has waited
-- since_ms bigint 0: submitted since
with first_start as (
    select workload, min(placed_ms) as placed_ms from mart.run_at($seq, $as_of_ms) group by workload
),
asked as (
    select f.placed_ms - w.time_ms as wait_ms, $as_of_ms - w.time_ms as age_ms, f.placed_ms is null and e.workload is null as waiting
    from fact.workload as w
    left join first_start as f using (workload)
    left join (select workload from fact.workload_end where seq <= $seq) as e using (workload)
    where w.budget = $budget and w.gpus_milli = $gpus_milli and w.admitted_seq between 1 and $seq and w.time_ms >= $since_ms
        and w.workload not in (select workload from fact.service)
)
select count(wait_ms) filter (wait_ms > $waited_ms) as started, count(*) filter (waiting and age_ms > $waited_ms) as waiting,
    (quantile_disc(wait_ms, 0.5) filter (wait_ms > $waited_ms) - $waited_ms)::bigint as p50_more_ms,
    (quantile_disc(wait_ms, 0.9) filter (wait_ms > $waited_ms) - $waited_ms)::bigint as p90_more_ms
from asked
