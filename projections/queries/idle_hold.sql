-- When did which runs hold GPUs and do no work, for how long, and how much of it did their budget pay?
-- budget varchar null: this budget and those below it
-- principal varchar null
-- since_ms bigint 0
-- until_ms bigint null
-- row_limit bigint 1000
select pool, budget, principal as "user", workload, run, kind, gpus_milli, from_ms, to_ms, to_ms - from_ms as idle_ms, is_open, idle_gpu_us,
    paid_gpu_us, limit_ms, said_seq
from mart.idle_spells_at($seq, $as_of_ms)
where ($budget is null or budget = $budget or starts_with(budget, $budget || '/')) and ($principal is null or principal = $principal)
    and to_ms > $since_ms and from_ms < coalesce($until_ms, $as_of_ms + 1)
order by idle_gpu_us desc, workload, run, from_ms
limit $row_limit
