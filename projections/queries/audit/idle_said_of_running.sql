-- Is idle holding said only of runs that had started and not ended, and never of a time before they held their GPUs?
select d.seq, d.position, d.workload, d.run, (d.body->>'$.since_ms')::bigint as since_ms, r.placed_ms, r.started_ms
from fact.decision as d left join mart.run_at($seq, $as_of_ms) as r on r.workload = d.workload and r.run = d.run
where d.type = 'run.idle' and d.seq <= $seq
    and not (r.started_ms > 0 and r.placed_seq <= d.seq and (r.is_open or r.closed_seq >= d.seq)
        and ((d.body->>'$.since_ms')::bigint = 0 or (d.body->>'$.since_ms')::bigint between r.placed_ms and d.time_ms)) is true
