-- Is every accepted clock.tick answered by exactly one cycle, and every cycle asked for by one, at its time?
select coalesce(e.seq, c.seq) as seq, e.time_ms as tick_ms, c.time_ms as cycle_ms, c.cycles
from (select seq, time_ms from raw.event_log where type = 'clock.tick' and not refused and seq <= $seq) as e
full join (select seq, any_value(time_ms) as time_ms, count(*) as cycles from fact.cycle where seq <= $seq group by seq) as c on c.seq = e.seq
where e.seq is null or c.seq is null or c.cycles <> 1 or e.time_ms <> c.time_ms
