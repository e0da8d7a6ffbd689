-- How much is in each kind of account, over all budgets of a pool?
select pool, account, sum(amount_gpu_us)::bigint as amount_gpu_us, count(*) as lines
from fact.ledger where seq <= $seq group by all order by all
