-- Is work that asked for idle cycles only never paid by a budget?
select a.alloc_id, a.workload, a.run, a.budget
from mart.alloc_at($seq, $as_of_ms) as a join fact.workload as w using (workload)
where w.min_runtime_ms = 0 and a.payer = 'budget'
