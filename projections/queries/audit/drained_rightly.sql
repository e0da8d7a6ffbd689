-- Was every run that had to leave a node there, was the node drained by that deadline, and, without force, was it neither funded nor protected?
select d.seq, d.workload, d.run, d.node, d.payer, a.protected_until_ms, n.deadline_ms, n.force
from fact.decision as d
-- who has promised his last microsecond in that cycle stops paying after it
left join mart.alloc_at($seq, $as_of_ms) as a on a.workload = d.workload and a.run = d.run and a.node = d.node and a.payer = d.payer
    and a.open_seq <= d.seq and (a.is_open or a.close_seq >= d.seq)
left join mart.drain_at($seq) as n on n.node = d.node and n.from_seq < d.seq and (n.is_open or n.to_seq > d.seq)
where d.type = 'run.drained' and d.seq <= $seq and (
    a.node is null or n.node is null or n.deadline_ms <> (d.body->>'$.deadline_ms')::bigint
    or (not n.force and (d.payer = 'budget' or a.protected_until_ms > d.time_ms))
)
