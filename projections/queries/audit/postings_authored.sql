-- Does each grant, transfer and withdrawal stand on an accepted event of its amount, and each period's grant on the calendar's decision?
select l.seq, l.position, l.line, l.kind, l.budget, l.amount_gpu_us
from fact.ledger as l
left join raw.event_log as e on e.seq = l.seq and l.position = 0 and not e.refused
    and e.type = case l.kind when 'grant' then 'budget.granted' when 'withdrawal' then 'budget.withdrawn' else 'budget.transferred' end
    and (e.body->>'$.data.gpu_us')::bigint = abs(l.amount_gpu_us)
left join fact.decision as d on d.seq = l.seq and d.position = l.position and d.type = 'grant.issued' and l.kind in ('grant', 'lapse')
    and d.budget = l.budget and (d.body->>case l.kind when 'grant' then '$.gpu_us' else '$.lapsed_gpu_us' end)::bigint = abs(l.amount_gpu_us)
where l.seq <= $seq and l.kind in ('grant', 'withdrawal', 'transfer', 'lapse') and l.account = 'budget' and l.amount_gpu_us <> 0
    and e.seq is null and d.seq is null
