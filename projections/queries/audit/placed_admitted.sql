-- Was every run placed for a workload that had been admitted before, and had not ended?
select d.seq, d.position, d.workload, d.run
from fact.decision as d
where d.type = 'run.placed' and d.seq <= $seq and (
    not exists (select 1 from fact.decision as a where a.type = 'workload.admitted' and a.workload = d.workload and (a.seq, a.position) < (d.seq, d.position))
    or exists (select 1 from fact.workload_end as e where e.workload = d.workload and (e.seq, e.position) < (d.seq, d.position))
)
