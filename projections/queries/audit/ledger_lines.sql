-- Is every line of the ledger there once, and about something?
select seq, position, line, count(*) as rows, min(amount_gpu_us) as amount_gpu_us
from fact.ledger where seq <= $seq group by seq, position, line having count(*) > 1 or min(amount_gpu_us) = 0
