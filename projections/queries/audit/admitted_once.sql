-- Is every workload admitted once and ended at most once, in this order?
select workload, count(*) filter (type = 'workload.admitted') as admitted, count(*) filter (type = 'workload.closed') as closed
from fact.decision
where type in ('workload.admitted', 'workload.closed') and seq <= $seq
group by workload
having count(*) filter (type = 'workload.admitted') > 1 or count(*) filter (type = 'workload.closed') > 1
    or max(seq) filter (type = 'workload.admitted') > min(seq) filter (type = 'workload.closed')
