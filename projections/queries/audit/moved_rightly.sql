-- Was every run that was moved movable, started, past its protected time, and did its pool's policy let moves be carried out?
select d.seq, d.workload, d.run, w.movable, r.started_ms, r.protected_until_ms, d.time_ms
from fact.decision as d
left join fact.workload as w using (workload)
left join mart.run_at($seq, $as_of_ms) as r on r.workload = d.workload and r.run = d.run
where d.type = 'run.moved' and d.seq <= $seq and not coalesce(
    w.movable and r.started_ms > 0 and r.protected_until_ms <= d.time_ms
    and (select arg_max(v.moves, v.seq) from dim.policy_version as v where v.pool = r.pool and v.seq < d.seq) = 'carry_out',
    false)
