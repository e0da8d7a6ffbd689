-- Which cycles ran, what did each read and decide?
-- after_seq bigint 0
-- row_limit bigint 100
select seq, cycle, time_ms, why, core, records, heartbeats, stale_heartbeats, decisions, digest, chain
from fact.cycle where seq <= $seq and seq > $after_seq order by seq limit $row_limit
