-- Is every run number used once, counting up from 1 without gap?
select workload, count(*) as placed, count(distinct run) as numbers, max(run) as last_run
from fact.decision where type = 'run.placed' and seq <= $seq
group by workload having count(*) <> count(distinct run) or max(run) <> count(*) or min(run) <> 1
