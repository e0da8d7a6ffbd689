-- Was no run inside its protected time preempted, and under policy fair no funded run?
select c.seq, c.victim, c.victim_run, a.payer, a.why, a.protected_until_ms, c.time_ms
from fact.certificate as c
join mart.alloc_at($seq, $as_of_ms) as a
    on a.workload = c.victim and a.run = c.victim_run and a.open_seq <= c.seq and (a.is_open or a.close_seq > c.seq)
where c.seq <= $seq and ((a.payer = 'budget' and c.policy = 'fair') or a.protected_until_ms > c.time_ms)
