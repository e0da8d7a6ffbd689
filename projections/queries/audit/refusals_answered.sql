-- Is every refused record explained by one refusal of the next cycle, and every refusal about a refused record?
select coalesce(e.seq, r.event_seq) as event_seq, e.seq is null as not_marked, r.refusals
from (select seq from raw.event_log where refused and seq <= $seq) as e
full join (
    select r.event_seq, count(*) as refusals, min(c.first_seq) as first_seq, min(r.seq) as seq
    from fact.rejection as r join fact.cycle as c on c.seq = r.seq where r.seq <= $seq group by r.event_seq
) as r on r.event_seq = e.seq
where e.seq is null or r.event_seq is null or r.refusals <> 1 or r.event_seq < r.first_seq or r.event_seq > r.seq
