-- Were the GPUs that a preemption freed held for its beneficiary in the same cycle?
select c.seq, c.beneficiary, c.needed_milli
from fact.certificate as c
where c.seq <= $seq and not exists (
    select 1 from fact.reservation as r
    where r.seq = c.seq and r.workload = c.beneficiary and r.position > c.position and len(from_json(r.pieces, '["JSON"]')) > 0
)
