-- What is a budget's balance at the beginning and at the end of a period, and what had it used by then?
-- budget varchar
-- pool varchar
-- from_ms bigint
-- to_ms bigint: not included
with edge as (
    -- what has been posted by an edge is what lies before it; time is charged up to it, or up to where the data ends
    select 'opening' as edge, $from_ms as before_ms, least($from_ms, $as_of_ms) as ms
    union all
    select 'closing', $to_ms, greatest($from_ms, least($to_ms, $as_of_ms))
),
posting as (
    select seq, position, time_ms, kind, amount_gpu_us
    from fact.ledger
    where pool = $pool and budget = $budget and account = 'budget' and seq <= $seq and kind not in ('charge', 'reserve', 'void', 'refund')
),
metered as (
    select min(time_ms) as ms, min((seq, position)) as place from posting where kind = 'grant'
),
posted as (
    select e.edge, sum(p.amount_gpu_us)::bigint as gpu_us from edge as e join posting as p on p.time_ms < e.before_ms group by e.edge
),
used as (
    select e.edge,
        sum(case when a.payer = 'budget' then a.gpus_milli * (least(a.end_ms, e.ms) - a.start_ms) else 0 end)::bigint as funded,
        sum(case when a.payer = 'budget' then 0 else a.gpus_milli * (least(a.end_ms, e.ms) - a.start_ms) end)::bigint as unfunded,
        sum(case when a.payer = 'budget' and m.ms < least(a.end_ms, e.ms)
            then a.gpus_milli * (least(a.end_ms, e.ms) - greatest(a.start_ms, m.ms)) else 0 end)::bigint as counted
    from edge as e, metered as m, mart.alloc_at($seq, $as_of_ms) as a
    where a.pool = $pool and (a.budget = $budget or starts_with(a.budget, $budget || '/')) and a.start_ms < e.ms
    group by e.edge
),
refunded as (
    select e.edge,
        sum(case when l.account = 'budget' then l.amount_gpu_us else 0 end)::bigint as funded,
        sum(case when l.account = 'pool_time' then l.amount_gpu_us else 0 end)::bigint as unfunded,
        sum(case when l.account = 'budget' and (l.seq, l.position) > m.place then l.amount_gpu_us else 0 end)::bigint as counted
    from edge as e, metered as m, fact.ledger as l
    where l.kind = 'refund' and l.pool = $pool and (l.budget = $budget or starts_with(l.budget, $budget || '/'))
        and l.seq <= $seq and l.time_ms < e.before_ms
    group by e.edge
)
select e.edge, e.ms as at_ms, coalesce(m.ms < e.before_ms, false) as metered, m.ms as metered_ms,
    coalesce(p.gpu_us, 0) as posted_gpu_us, coalesce(u.counted, 0) as charged_gpu_us, coalesce(r.counted, 0) as refunded_gpu_us,
    coalesce(p.gpu_us, 0) - coalesce(u.counted, 0) + coalesce(r.counted, 0) as balance_gpu_us,
    coalesce(u.funded, 0) - coalesce(r.funded, 0) as used_gpu_us,
    coalesce(u.unfunded, 0) - coalesce(r.unfunded, 0) as unfunded_gpu_us
from edge as e cross join metered as m
left join posted as p using (edge)
left join used as u using (edge)
left join refunded as r using (edge)
order by e.ms, e.edge desc
