-- Does time never run backwards in the log?
select seq, time_ms, before_ms
from (select seq, time_ms, lag(time_ms) over (order by seq) as before_ms from raw.event_log where seq <= $seq)
where time_ms < before_ms
