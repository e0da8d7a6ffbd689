-- Is the past never written anew: does nothing end before the cycle before the one that closed it, and is every posting of its own time?
with cycle as (
    select seq, time_ms, lag(time_ms, 1, 0) over (order by seq) as before_ms from fact.cycle
)
select 'allocation' as what, a.workload, a.run, a.close_seq as seq, a.end_ms as at_ms, c.before_ms, c.time_ms
from fact.alloc_closed as a join cycle as c on c.seq = a.close_seq
where a.close_seq <= $seq and a.end_ms < c.before_ms
union all
select 'run', r.workload, r.run, r.closed_seq, r.end_ms, c.before_ms, c.time_ms
from fact.run_closed as r join cycle as c on c.seq = r.closed_seq
where r.closed_seq <= $seq and r.end_ms < c.before_ms
union all
select 'posting', l.workload, l.run, l.seq, l.time_ms, e.time_ms, e.time_ms
from fact.ledger as l join raw.event_log as e on e.seq = l.seq
where l.seq <= $seq and l.kind in ('grant', 'withdrawal', 'transfer', 'lapse') and l.time_ms <> e.time_ms
