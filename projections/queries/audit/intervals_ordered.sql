-- Does no interval end before it begins, or later than the cycle that closed it?
select 'allocation' as what, a.alloc_id as id, a.workload, a.run, a.start_ms, a.end_ms, c.time_ms as closed_ms
from fact.alloc_closed as a left join fact.cycle as c on c.seq = a.close_seq
where a.close_seq <= $seq and not (a.end_ms >= a.start_ms and a.end_ms <= c.time_ms and a.open_seq <= a.close_seq) is true
union all
select 'run', r.run_id, r.workload, r.run, r.placed_ms, r.end_ms, c.time_ms
from fact.run_closed as r left join fact.cycle as c on c.seq = r.closed_seq
where r.closed_seq <= $seq and not (r.end_ms >= r.placed_ms and r.end_ms <= c.time_ms and r.placed_seq <= r.closed_seq) is true
