-- Who holds which GPUs at an instant, for which workload, and who pays?
-- pool varchar null
-- node varchar null
-- budget varchar null: this budget and those below it
select pool, node, gpus, milli_each, gpus_milli, workload, run, piece, budget, principal as "user", kind, payer, why,
    mart.standing(payer, protected_until_ms, $as_of_ms) as standing, start_ms as since_ms, open_seq
from mart.held_at($seq)
where ($pool is null or pool = $pool) and ($node is null or node = $node)
    and ($budget is null or budget = $budget or starts_with(budget, $budget || '/'))
order by pool, node, gpus, workload, run
