-- Does every funded allocation name a budget that was open when it began?
select a.alloc_id, a.workload, a.run, a.pool, a.budget, a.open_seq
from mart.alloc_at($seq, $as_of_ms) as a
where a.payer = 'budget' and not exists (
    select 1 from dim.budget as b
    where b.pool = a.pool and b.budget = a.budget and b.seq <= a.open_seq and coalesce(b.valid_to_seq > a.open_seq, true) and not b.closed
)
