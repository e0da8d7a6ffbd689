-- Were the GPUs that a preemption freed held for its beneficiary in the same cycle?
select c.seq, c.beneficiary, c.needed_milli
from fact.certificate as c left join (
    select seq, workload, max(position) as position from fact.reservation where len(from_json(pieces, '["JSON"]')) > 0 group by seq, workload
) as r on r.seq = c.seq and r.workload = c.beneficiary
where c.seq <= $seq and (r.position > c.position) is not true
