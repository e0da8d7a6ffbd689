-- How much is in each account of the ledger? All accounts together hold nothing: they sum to zero.
-- pool varchar null
select pool, budget, account, sum(amount_gpu_us)::bigint as amount_gpu_us, count(*) as lines
from fact.ledger where seq <= $seq and ($pool is null or pool = $pool) group by all order by all
