-- Is a GPU out of service for one reason at a time, and only while its node has it?
with single as (
    select node, unnest(gpus) as gpu, state, from_ms, to_ms from mart.out_at($seq, $as_of_ms) where to_ms > from_ms
)
select node, gpu, state, from_ms, to_ms, 'overlap' as what
from (select *, lead(from_ms) over (partition by node, gpu order by from_ms, to_ms) as next_ms from single)
where next_ms < to_ms
union all
select o.node, o.gpu, o.state, o.from_ms, o.to_ms, 'not in supply'
from single as o
left join mart.supply_at($seq, $as_of_ms) as s on s.node = o.node and s.from_ms < o.to_ms and s.to_ms > o.from_ms and o.gpu < s.gpus
group by all
having sum(case when s.node is null then 0 else least(s.to_ms, o.to_ms) - greatest(s.from_ms, o.from_ms) end) <> o.to_ms - o.from_ms
