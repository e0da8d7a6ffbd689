-- Is a node in one pool at a time, with one size?
select node, from_ms, to_ms, next_ms
from (select *, lead(from_ms) over (partition by node order by from_seq) as next_ms from mart.supply_at($seq, $as_of_ms))
where next_ms < to_ms or to_ms < from_ms
