-- What entered a budget's account on each of some days (UTC), what did it use, and what did its whole pool use?
-- budget varchar
-- pool varchar
-- from_ms bigint: a midnight
with posting as (
    select seq, position, time_ms, kind, amount_gpu_us
    from fact.ledger
    where pool = $pool and budget = $budget and account = 'budget' and seq <= $seq and kind not in ('charge', 'reserve', 'void', 'refund')
),
metered as (
    select min(time_ms) as ms, min((seq, position)) as place from posting where kind = 'grant'
),
slice as (
    select payer, gpus_milli, start_ms, end_ms, budget = $budget or starts_with(budget, $budget || '/') as own,
        unnest(range(greatest(start_ms, $from_ms) // 86400000, (end_ms - 1) // 86400000 + 1)) as day
    from mart.alloc_at($seq, $as_of_ms)
    where pool = $pool and end_ms > $from_ms and end_ms > start_ms
),
part as (
    select s.day, s.own, s.payer, s.gpus_milli * (least(s.end_ms, (s.day + 1) * 86400000) - greatest(s.start_ms, s.day * 86400000)) as gpu_us,
        s.gpus_milli * greatest(0, least(s.end_ms, (s.day + 1) * 86400000) - greatest(s.start_ms, s.day * 86400000, m.ms)) as since_metered
    from slice as s, metered as m
),
line as (
    select day, 0 as posted, case when own and payer = 'budget' and since_metered is not null then since_metered else 0 end as charged,
        0 as refunded, case when own and payer = 'budget' then gpu_us else 0 end as funded,
        case when own and payer <> 'budget' then gpu_us else 0 end as unfunded, gpu_us as pool_used
    from part
    union all
    select time_ms // 86400000, amount_gpu_us, 0, 0, 0, 0, 0 from posting where time_ms >= $from_ms
    union all
    -- a refund counts on the day it was given, for the balance, and takes back what the run had used
    select l.time_ms // 86400000, 0, 0,
        case when l.account = 'budget' and own and (l.seq, l.position) > m.place then l.amount_gpu_us else 0 end,
        case when l.account = 'budget' and own then -l.amount_gpu_us else 0 end,
        case when l.account = 'pool_time' and own then -l.amount_gpu_us else 0 end,
        -l.amount_gpu_us
    from (select *, budget = $budget or starts_with(budget, $budget || '/') as own from fact.ledger) as l, metered as m
    where l.kind = 'refund' and l.account in ('budget', 'pool_time') and l.pool = $pool and l.seq <= $seq and l.time_ms >= $from_ms
)
select day * 86400000 as day_ms, strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') as day,
    sum(posted)::bigint as posted_gpu_us, sum(charged)::bigint as charged_gpu_us, sum(refunded)::bigint as refunded_gpu_us,
    sum(funded)::bigint as funded_gpu_us, sum(unfunded)::bigint as unfunded_gpu_us, sum(pool_used)::bigint as pool_used_gpu_us
from line
group by day
order by day
