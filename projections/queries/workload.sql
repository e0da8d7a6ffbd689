-- Which workloads go by this id or name, and how do they stand?
-- workload varchar
select w.workload, w.name, w.principal, w.kind, w.pool, w.budget, w.gpus_milli, w.nodes, w.milli_per_node, w.min_runtime_ms,
    w.expected_runtime_ms, w.checkpoint_interval_ms, w.grace_ms, w.priority, w.auto_resume, w.movable, w.max_failures, w.command,
    coalesce(v.pools, to_json([w.pool])) as pools, coalesce(v.loose, false) as loose, coalesce(v.within, '') as within,
    coalesce(v.near, '') as near, coalesce(v.labels, '{}') as labels, coalesce(v.gpu_memory_mib, 0) as gpu_memory_mib,
    coalesce(v.cpu_milli, 0) as cpu_milli, coalesce(v.memory_mib, 0) as memory_mib, coalesce(v.exclusive, false) as exclusive,
    coalesce(v.block, false) as block, coalesce(v.apart, '') as apart, coalesce(v.apart_level, '') as apart_level,
    w.seq as submitted_seq, w.time_ms as submitted_ms, w.admitted_seq, w.admitted_ms,
    w.service, coalesce(s.state, e.outcome, if(w.workload in (select workload from fact.service), 'serving', 'over')) as state, coalesce(s.run, e.runs) as run, s.from_ms as since_ms,
    e.outcome, e.time_ms as ended_ms
from fact.workload as w
left join fact.wish as v using (workload, seq)
left join mart.state_at($seq) as s using (workload)
left join (select * from fact.workload_end where seq <= $seq) as e using (workload)
where greatest(w.seq, w.admitted_seq) <= $seq and (w.workload = $workload or (w.name = $workload and w.name <> '' and w.service = ''))
order by w.seq desc
