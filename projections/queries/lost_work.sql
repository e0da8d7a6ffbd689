-- How much GPU time was lost on each day (UTC) because runs ended before a checkpoint, by what ended them, and what was given back?
-- budget varchar null: this budget and those below it
-- pool varchar null
-- since_ms bigint 0
-- until_ms bigint null
select strftime(make_timestamp(end_ms // 86400000 * 86400000000), '%Y-%m-%d') as day, pool, budget, outcome, count(*) as runs,
    sum(lost_gpu_us)::bigint as lost_gpu_us, sum(charged_gpu_us + unfunded_gpu_us)::bigint as ended_gpu_us,
    sum(refunded_gpu_us + unfunded_refunded_gpu_us)::bigint as refunded_gpu_us
from fact.run_closed
where closed_seq <= $seq and lost_gpu_us > 0 and end_ms >= $since_ms and end_ms < coalesce($until_ms, $as_of_ms + 1)
    and ($budget is null or budget = $budget or starts_with(budget, $budget || '/')) and ($pool is null or pool = $pool)
group by all
order by all
