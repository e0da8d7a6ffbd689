-- Did every workload for which others had to make room start afterwards, or was it withdrawn, or does it hold GPUs still?
select c.beneficiary, min(c.seq) as preempted_seq
from fact.certificate as c
where c.seq <= $seq
    and not exists (select 1 from fact.decision as p where p.type = 'run.placed' and p.workload = c.beneficiary and p.seq >= c.seq and p.seq <= $seq)
    and not exists (select 1 from fact.workload_end as e where e.workload = c.beneficiary and e.seq >= c.seq and e.seq <= $seq)
    -- a hold is given up when one of its GPUs goes out of service
    and coalesce((select arg_max(len(from_json(r.pieces, '["JSON"]')), (r.seq, r.position)) from fact.reservation as r
        where r.workload = c.beneficiary and r.seq <= $seq), 0) = 0
    and not exists (select 1 from fact.reservation as r
        where r.workload = c.beneficiary and r.seq > c.seq and r.seq <= $seq and len(from_json(r.pieces, '["JSON"]')) = 0)
group by c.beneficiary
