-- Did every workload for which runs were moved start afterwards, or was it withdrawn, or does it hold GPUs still?
select m.beneficiary, min(m.seq) as moved_seq
from (select seq, body->>'$.certificate.beneficiary' as beneficiary from fact.decision where type = 'run.moved' and seq <= $seq) as m
where not exists (select 1 from fact.decision as p where p.type = 'run.placed' and p.workload = m.beneficiary and p.seq >= m.seq and p.seq <= $seq)
    and not exists (select 1 from fact.workload_end as e where e.workload = m.beneficiary and e.seq >= m.seq and e.seq <= $seq)
    -- a hold is given up when one of its GPUs goes out of service
    and coalesce((select arg_max(len(from_json(r.pieces, '["JSON"]')), (r.seq, r.position)) from fact.reservation as r
        where r.workload = m.beneficiary and r.seq <= $seq), 0) = 0
    and not exists (select 1 from fact.reservation as r
        where r.workload = m.beneficiary and r.seq > m.seq and r.seq <= $seq and len(from_json(r.pieces, '["JSON"]')) = 0)
group by m.beneficiary
