-- Does every record have its place in the log: as many rows and heartbeats per cycle as sequences?
select c.seq, c.first_seq, c.records, c.heartbeats + c.stale_heartbeats as heartbeats, count(e.seq) as rows
from fact.cycle as c left join raw.event_log as e on e.seq between c.first_seq and c.seq
where c.seq <= $seq
group by all
having c.records <> c.seq - c.first_seq + 1 or count(e.seq) + c.heartbeats + c.stale_heartbeats <> c.records
