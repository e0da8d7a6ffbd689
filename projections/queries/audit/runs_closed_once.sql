-- Is every closed run one that was placed, and closed once?
select d.workload, d.run, count(*) filter (type = 'run.placed') as placed, count(*) filter (type = 'run.closed') as closed
from fact.decision as d where type in ('run.placed', 'run.closed') and seq <= $seq
group by d.workload, d.run
having count(*) filter (type = 'run.placed') <> 1 or count(*) filter (type = 'run.closed') > 1
    or min((seq, position)) filter (type = 'run.placed') > min((seq, position)) filter (type = 'run.closed')
