-- Under policy fair, do two budgets never take GPUs from each other in turn within the pool's quantum?
with taken as (
    select c.seq, c.time_ms, c.victim_budget, c.beneficiary_budget, p.pool
    from fact.certificate as c join fact.decision as p on p.type = 'run.placed' and p.workload = c.victim and p.run = c.victim_run
    where c.seq <= $seq and c.policy = 'fair' and p.reason <> 'idle_cycles'
)
select b.seq, b.victim_budget, b.beneficiary_budget, a.seq as before_seq, b.time_ms - a.time_ms as after_ms
from taken as a
join taken as b on b.pool = a.pool and b.victim_budget = a.beneficiary_budget and b.beneficiary_budget = a.victim_budget and b.seq > a.seq
join dim.policy as q on q.pool = a.pool and q.seq <= b.seq and coalesce(q.valid_to_seq > b.seq, true)
where b.time_ms - a.time_ms < q.quantum_ms
