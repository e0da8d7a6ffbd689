-- Does every decision answer an input that came before it?
select d.seq, d.position, d.type, d.event_seq
from fact.decision as d
where d.seq <= $seq and d.event_seq <> 0 and d.event_seq >= d.seq
