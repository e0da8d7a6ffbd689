-- Are all decisions of a cycle there, each in its place, at the cycle's time?
select coalesce(c.seq, d.seq) as seq, c.decisions, d.rows
from (select seq, time_ms, decisions from fact.cycle where seq <= $seq) as c
full join (
    select seq, count(*) as rows, count(distinct position) as places, max(position) as last_place, min(time_ms) as first_ms, max(time_ms) as last_ms
    from fact.decision where seq <= $seq group by seq
) as d on d.seq = c.seq
where c.seq is null or coalesce(d.rows, 0) <> c.decisions
    or (d.seq is not null and (d.places <> d.rows or d.last_place <> d.rows - 1 or d.first_ms <> c.time_ms or d.last_ms <> c.time_ms))
