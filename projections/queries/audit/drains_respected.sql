-- Was no run placed on a drained node that did not state to be over by the node's deadline?
select p.seq, p.workload, p.run, a.node, d.deadline_ms, w.expected_runtime_ms
from fact.decision as p
join (select distinct workload, run, node from mart.alloc_at($seq, $as_of_ms)) as a using (workload, run)
join mart.drain_at($seq) as d on d.node = a.node and d.from_seq < p.seq and (d.is_open or d.to_seq > p.seq)
join fact.workload as w using (workload)
where p.type = 'run.placed' and p.seq <= $seq
    and (w.expected_runtime_ms = 0 or p.time_ms >= d.deadline_ms
        or p.time_ms + greatest(0, w.expected_runtime_ms - coalesce((p.body->>'$.resume_from_ms')::bigint, 0)) > d.deadline_ms)
