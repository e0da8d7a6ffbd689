-- Which lines does the ledger have?
-- budget varchar null: this budget and those below it
-- pool varchar null
-- workload varchar null
-- kind varchar null
-- after_seq bigint 0
-- row_limit bigint 1000
select seq, position, line, time_ms, kind, pool, budget, account, amount_gpu_us, workload, run
from fact.ledger
where seq <= $seq and seq > $after_seq
    and ($budget is null or budget = $budget or starts_with(budget, $budget || '/'))
    and ($pool is null or pool = $pool)
    and ($workload is null or workload = mart.workload_named($workload, $seq))
    and ($kind is null or kind = $kind)
order by seq, position, line
limit $row_limit
