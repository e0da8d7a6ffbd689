-- Which workloads go by this id or name, and how do they stand?
-- workload varchar
select w.workload, w.name, w.principal, w.kind, w.pool, w.budget, w.gpus_milli, w.nodes, w.milli_per_node, w.min_runtime_ms,
    w.expected_runtime_ms, w.checkpoint_interval_ms, w.grace_ms, w.priority, w.auto_resume, w.movable, w.max_failures, w.command,
    w.seq as submitted_seq, w.time_ms as submitted_ms, w.admitted_seq, w.admitted_ms,
    coalesce(s.state, e.outcome, 'over') as state, coalesce(s.run, e.runs) as run, s.from_ms as since_ms,
    e.outcome, e.time_ms as ended_ms
from fact.workload as w
left join mart.state_at($seq) as s using (workload)
left join (select * from fact.workload_end where seq <= $seq) as e using (workload)
where greatest(w.seq, w.admitted_seq) <= $seq and (w.workload = $workload or (w.name = $workload and w.name <> ''))
order by w.seq desc
