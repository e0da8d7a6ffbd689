-- What did the core answer to an event? No row: not yet. 'accepted': it took effect and needed no decision of its own.
-- event_seq bigint
with answering as (
    select min(seq) as seq from fact.cycle where seq >= $event_seq and seq <= $seq
),
found as (
    select d.seq, d.position, d.time_ms, d.type, d.workload, d.run, d.budget, d.pool, d.reason, d.payer, d.body
    from fact.decision as d where d.event_seq = $event_seq and d.seq <= $seq
)
select * from found
union all
select c.seq, -1, c.time_ms, 'accepted', '', 0, '', '', '', '', '{}'
from fact.cycle as c join answering as a on c.seq = a.seq
where not exists (select 1 from found where type in ('rejected', 'workload.rejected', 'workload.admitted'))
order by 1, 2
