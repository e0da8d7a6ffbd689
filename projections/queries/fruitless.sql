-- Which workloads made attempt after attempt of which nothing was kept?
-- attempts bigint 3: at least so many in a row
-- budget varchar null: this budget and those below it
with attempt as (
    select workload, run, pool, budget, principal, outcome, end_ms, charged_gpu_us + unfunded_gpu_us as gpu_us, useful_gpu_us > 0 as kept,
        sum(case when useful_gpu_us > 0 then 1 else 0 end) over (partition by workload order by run) as spell
    from fact.run_closed where closed_seq <= $seq
)
select workload, any_value(pool) as pool, any_value(budget) as budget, any_value(principal) as "user", count(*) as attempts,
    min(run) as first_run, max(run) as last_run, histogram(outcome) as outcomes, sum(gpu_us)::bigint as gpu_us, max(end_ms) as last_ms
from attempt
where not kept and ($budget is null or budget = $budget or starts_with(budget, $budget || '/'))
group by workload, spell
having count(*) >= $attempts
order by attempts desc, gpu_us desc, workload, first_run
