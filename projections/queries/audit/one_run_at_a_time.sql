-- Does a workload never have two runs at once?
select workload, run, placed_ms, end_ms, next_ms
from (select *, lead(placed_ms) over (partition by workload order by run) as next_ms from mart.run_at($seq, $as_of_ms))
where next_ms < end_ms
