-- Who had to make room for whom, by which numbers, and did it help?
-- workload varchar null: as victim or beneficiary
-- budget varchar null
-- after_seq bigint 0
-- row_limit bigint 1000
select c.seq, c.position, c.time_ms, c.victim, c.victim_run, c.victim_budget, c.victim_gpus_milli, c.victim_running_milli,
    c.victim_allowance_milli, c.ran_ms, c.lost_gpu_us, c.grace_until_ms, c.beneficiary, c.beneficiary_budget,
    c.beneficiary_gpus_milli, c.beneficiary_running_milli, c.beneficiary_allowance_milli, c.freed_milli, c.needed_milli, c.policy, c.numbers,
    r.outcome, r.end_ms, r.requeued, p.placed_ms as beneficiary_placed_ms, p.placed_ms - c.time_ms as beneficiary_waited_ms
from fact.certificate as c
left join mart.run_at($seq, $as_of_ms) as r on r.workload = c.victim and r.run = c.victim_run and not r.is_open
left join lateral (
    select min(placed_ms) as placed_ms from mart.run_at($seq, $as_of_ms) as b where b.workload = c.beneficiary and b.placed_seq >= c.seq
) as p on true
where c.seq <= $seq and c.seq > $after_seq
    and ($workload is null or c.victim = mart.workload_named($workload, $seq) or c.beneficiary = mart.workload_named($workload, $seq))
    and ($budget is null or c.victim_budget = $budget or c.beneficiary_budget = $budget)
order by c.seq, c.position
limit $row_limit
