-- What does the statement of a budget's period list: each posting and each run in it, split exactly at the period's edges?
-- budget varchar
-- pool varchar
-- from_ms bigint
-- to_ms bigint: not included
with span as (
    select $from_ms as lo, greatest($from_ms, least($to_ms, $as_of_ms)) as hi
),
posting as (
    -- whatever enters or leaves the account by itself; a new kind of posting stands here under its own name
    select seq, position, line, time_ms, kind, amount_gpu_us
    from fact.ledger
    where pool = $pool and budget = $budget and account = 'budget' and seq <= $seq and kind not in ('charge', 'reserve', 'void', 'refund')
),
metered as (
    -- a balance starts at the first grant: time charged before it counts against nothing
    select min(time_ms) as ms, min((seq, position)) as place from posting where kind = 'grant'
),
held as (
    select workload, run,
        sum(case when payer = 'budget' then gpus_milli * (to_ms - from_ms) else 0 end)::bigint as funded_gpu_us,
        sum(case when payer = 'budget' then 0 else gpus_milli * (to_ms - from_ms) end)::bigint as unfunded_gpu_us,
        sum(case when payer = 'budget' then gpus_milli * greatest(0, to_ms - greatest(from_ms, coalesce(metered_ms, to_ms))) else 0 end)::bigint
            as counted_gpu_us
    from (
        select a.workload, a.run, a.payer, a.gpus_milli, greatest(a.start_ms, s.lo) as from_ms, least(a.end_ms, s.hi) as to_ms, m.ms as metered_ms
        from mart.alloc_at($seq, $as_of_ms) as a, span as s, metered as m
        where a.pool = $pool and (a.budget = $budget or starts_with(a.budget, $budget || '/')) and a.start_ms < s.hi and a.end_ms > s.lo
    )
    group by workload, run
),
refund as (
    select l.workload, l.run, max(l.time_ms) as refund_ms,
        sum(case when l.account = 'budget' then l.amount_gpu_us else 0 end)::bigint as refunded_gpu_us,
        sum(case when l.account = 'pool_time' then l.amount_gpu_us else 0 end)::bigint as unfunded_refunded_gpu_us,
        sum(case when l.account = 'budget' and (l.seq, l.position) > m.place then l.amount_gpu_us else 0 end)::bigint as counted_gpu_us
    from fact.ledger as l, metered as m
    where l.kind = 'refund' and l.pool = $pool and (l.budget = $budget or starts_with(l.budget, $budget || '/'))
        and l.seq <= $seq and l.time_ms >= $from_ms and l.time_ms < $to_ms
    group by l.workload, l.run
),
run_line as (
    select r.workload, r.run, r.placed_seq as seq, r.budget, r.principal as "user", w.name, r.gpus_milli, r.placed_ms as start_ms,
        case when r.is_open then null else r.end_ms end as end_ms, r.outcome,
        greatest(r.placed_ms, s.lo) as from_ms, least(r.end_ms, s.hi) as to_ms,
        coalesce(h.funded_gpu_us, 0) as funded_gpu_us, coalesce(h.unfunded_gpu_us, 0) as unfunded_gpu_us,
        coalesce(f.refunded_gpu_us, 0) as refunded_gpu_us, coalesce(f.unfunded_refunded_gpu_us, 0) as unfunded_refunded_gpu_us,
        coalesce(f.counted_gpu_us, 0) as credit_gpu_us, coalesce(h.counted_gpu_us, 0) as debit_gpu_us,
        case when h.workload is null then f.refund_ms else least(r.end_ms, s.hi) end as booked_ms,
        h.workload is null as only_refund
    from held as h full join refund as f using (workload, run)
    join mart.run_at($seq, $as_of_ms) as r using (workload, run)
    join fact.workload as w using (workload), span as s
),
line as (
    select booked_ms, 1 as after_money, seq, 0 as line, case when only_refund then 'refund' else 'run' end as kind, workload, run, name, "user",
        budget, gpus_milli, start_ms, end_ms, from_ms, to_ms, outcome, funded_gpu_us, unfunded_gpu_us, refunded_gpu_us,
        unfunded_refunded_gpu_us, credit_gpu_us, debit_gpu_us, null as other, '' as reason
    from run_line
    union all
    select p.time_ms, 0, p.seq, p.line, p.kind, null, null, null, coalesce(e.principal, 'core'), $budget, null, null, null, null, null, null,
        0, 0, 0, 0, greatest(p.amount_gpu_us, 0), greatest(-p.amount_gpu_us, 0),
        case when p.kind <> 'transfer' then null when p.amount_gpu_us < 0 then e.body->>'$.data.to_budget' else e.body->>'$.data.from_budget' end,
        coalesce(e.body->>'$.data.reason', '')
    from posting as p
    -- what the calendar brings and takes is a decision; its author is whoever scheduled it
    left join fact.decision as d on d.seq = p.seq and d.position = p.position and d.type = 'grant.issued'
    left join raw.event_log as e on e.seq = coalesce(d.event_seq, p.seq)
    where p.time_ms >= $from_ms and p.time_ms < $to_ms
)
select booked_ms, kind, workload, run, name, "user", budget, gpus_milli, start_ms, end_ms, from_ms, to_ms, outcome, funded_gpu_us,
    unfunded_gpu_us, refunded_gpu_us, unfunded_refunded_gpu_us, credit_gpu_us, debit_gpu_us, other, reason, seq
from line
order by booked_ms, after_money, seq, line, workload, run
