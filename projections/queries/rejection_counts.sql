-- How often was what refused?
select reason, event_type, principal, count(*) as count, max(event_seq) as last_event_seq, max(time_ms) as last_ms
from fact.rejection where seq <= $seq group by all order by count desc, reason, event_type, principal
