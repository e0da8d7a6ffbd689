-- What happened to a workload, in order: events, decisions with their reasons, allocations, charges?
-- workload varchar
with it as (select mart.workload_named($workload, $seq) as workload),
line as (
    select e.seq, -1 as position, e.time_ms, 'event' as source, e.type as what, 0 as run, case when e.refused then 'refused' else '' end as reason,
        '' as payer, '' as node, 0 as gpus_milli, 0 as gpu_us, e.principal, e.body->'$.data' as detail
    from raw.event_log as e, it
    where e.entity = it.workload and e.seq <= $seq and (starts_with(e.type, 'workload.') or starts_with(e.type, 'run.'))
    union all
    select d.seq, d.position, d.time_ms, 'decision', d.type, d.run, d.reason, d.payer, d.node, d.gpus_milli, 0, 'core', d.body
    from fact.decision as d, it
    where d.workload = it.workload and d.seq <= $seq
    union all
    select a.open_seq, 1000000 + a.piece, a.start_ms, 'allocation', 'held', a.run, a.why, a.payer, a.node, a.gpus_milli, a.gpu_us, 'core',
        to_json({'gpus': a.gpus, 'milli_each': a.milli_each, 'end_ms': a.end_ms, 'is_open': a.is_open, 'end_reason': a.end_reason})
    from mart.alloc_at($seq, $as_of_ms) as a, it
    where a.workload = it.workload
    union all
    select l.seq, 2000000 + l.position * 100 + l.line, l.time_ms, 'ledger', l.kind, l.run, l.account, '', '', 0, l.amount_gpu_us, 'core',
        to_json({'budget': l.budget})
    from fact.ledger as l, it
    where l.workload = it.workload and l.seq <= $seq
)
select seq, time_ms, source, what, run, reason, payer, node, gpus_milli, gpu_us, principal, detail
from line
order by seq, position
