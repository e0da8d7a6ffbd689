-- Is every allocated GPU one that its node had at that time, in the allocation's pool?
select a.alloc_id, a.workload, a.run, a.node, a.gpus, a.start_ms, a.end_ms
from mart.alloc_at($seq, $as_of_ms) as a
where not exists (
    select 1 from mart.supply_at($seq, $as_of_ms) as s
    where s.node = a.node and s.pool = a.pool and s.from_ms <= a.start_ms and s.to_ms >= a.end_ms and list_max(a.gpus) < s.gpus
)
