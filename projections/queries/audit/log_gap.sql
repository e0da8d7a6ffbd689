-- Does every record have its place in the log: as many rows and heartbeats per cycle as sequences?
select c.seq, c.first_seq, c.records, c.heartbeats + c.stale_heartbeats as heartbeats, coalesce(e.rows, 0) as rows
from fact.cycle as c left join (
    -- a record is read for the first cycle at or after it
    select k.seq, count(*) as rows from raw.event_log as r asof join fact.cycle as k on r.seq <= k.seq group by k.seq
) as e using (seq)
where c.seq <= $seq
    and (c.records <> c.seq - c.first_seq + 1 or coalesce(e.rows, 0) + c.heartbeats + c.stale_heartbeats <> c.records)
