-- Is every allocated GPU one that its node had all that time, in the allocation's pool?
select a.alloc_id, a.workload, a.run, a.node, a.gpus, a.start_ms, a.end_ms
from mart.alloc_at($seq, $as_of_ms) as a
left join mart.supply_at($seq, $as_of_ms) as s
    on s.node = a.node and s.pool = a.pool and s.from_ms < a.end_ms and s.to_ms > a.start_ms and list_max(a.gpus) < s.gpus
where a.end_ms > a.start_ms
group by all
-- least and greatest pass over nulls
having sum(case when s.node is null then 0 else least(s.to_ms, a.end_ms) - greatest(s.from_ms, a.start_ms) end) <> a.end_ms - a.start_ms
