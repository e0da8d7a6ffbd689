-- Does every transaction of the ledger sum to zero?
select seq, position, sum(amount_gpu_us)::bigint as sum_gpu_us
from fact.ledger where seq <= $seq group by seq, position having sum(amount_gpu_us) <> 0
