-- Has every run that was asked to stop ended within its grace and a minute, by the cycles that ran since?
select d.seq, d.workload, d.run, (d.body->>'$.grace_until_ms')::bigint as grace_until_ms
from fact.decision as d
where d.type in ('run.preempted', 'run.cancelled', 'run.drained', 'run.moved', 'run.retired') and d.seq <= $seq and (d.body->>'$.grace_until_ms')::bigint + 60000 < $as_of_ms
    and not exists (select 1 from fact.decision as e where e.type = 'run.closed' and e.workload = d.workload and e.run = d.run and e.seq <= $seq)
