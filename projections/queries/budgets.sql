-- Which budgets are there, what is each entitled to, granted (less what was taken back), and has it left?
-- pool varchar null
with line as (
    select * from mart.budget_at($seq, $as_of_ms)
),
moved as (
    select pool, budget, min(case when kind = 'grant' then time_ms end) as metered_ms, min(case when kind = 'grant' then seq end) as metered_seq,
        sum(case when kind in ('grant', 'withdrawal') then amount_gpu_us else 0 end)::bigint as granted_gpu_us,
        sum(case when kind = 'transfer' then amount_gpu_us else 0 end)::bigint as transferred_gpu_us,
        -sum(case when kind = 'lapse' then amount_gpu_us else 0 end)::bigint as lapsed_gpu_us
    from fact.ledger
    where kind in ('grant', 'withdrawal', 'transfer', 'lapse') and account = 'budget' and seq <= $seq
    group by all
),
charged as (
    -- a balance starts at the first grant: time charged before it counts against nothing
    select m.pool, m.budget, sum(a.gpus_milli * (a.end_ms - greatest(a.start_ms, m.metered_ms)))::bigint as charged_gpu_us
    from moved as m join mart.alloc_at($seq, $as_of_ms) as a
        on a.pool = m.pool and (a.budget = m.budget or starts_with(a.budget, m.budget || '/')) and a.payer = 'budget' and a.end_ms > m.metered_ms
    group by all
),
refunded as (
    select m.pool, m.budget, sum(r.refunded_gpu_us)::bigint as refunded_gpu_us
    from moved as m join fact.run_closed as r
        on r.pool = m.pool and (r.budget = m.budget or starts_with(r.budget, m.budget || '/'))
        and r.closed_seq > m.metered_seq and r.closed_seq <= $seq
    group by all
),
reserved as (
    -- protected time that is promised and not yet charged
    select l.pool, l.budget, sum(r.gpus_milli * greatest(0, r.protected_until_ms - $as_of_ms))::bigint as reserved_gpu_us
    from line as l join mart.run_at($seq, $as_of_ms) as r
        on r.pool = l.pool and (r.budget = l.budget or starts_with(r.budget, l.budget || '/'))
    where r.is_open and r.reserved_gpu_us > 0
    group by all
),
burn as (
    select l.pool, l.budget, sum(b.funded_gpu_us)::bigint as funded_gpu_us, sum(b.unfunded_gpu_us)::bigint as unfunded_gpu_us,
        sum(b.running_milli)::bigint as running_milli, sum(b.funded_milli)::bigint as funded_milli,
        sum(b.pending_milli)::bigint as pending_milli
    from line as l join mart.burn_at($seq, $as_of_ms) as b
        on b.pool = l.pool and (b.budget = l.budget or starts_with(b.budget, l.budget || '/'))
    group by all
)
select l.pool, l.budget, l.parent, l.level, l.share_ppm, l.entitled_ppm, l.closed, m.metered_ms is not null as metered,
    coalesce(m.granted_gpu_us, 0) as granted_gpu_us, coalesce(m.transferred_gpu_us, 0) as transferred_gpu_us,
    coalesce(m.lapsed_gpu_us, 0) as lapsed_gpu_us,
    case when m.metered_ms is not null then coalesce(c.charged_gpu_us, 0) - coalesce(f.refunded_gpu_us, 0) end as charged_gpu_us,
    coalesce(f.refunded_gpu_us, 0) as refunded_gpu_us, coalesce(r.reserved_gpu_us, 0) as reserved_gpu_us,
    case when m.metered_ms is not null then m.granted_gpu_us + m.transferred_gpu_us - m.lapsed_gpu_us - coalesce(c.charged_gpu_us, 0)
        + coalesce(f.refunded_gpu_us, 0) - coalesce(r.reserved_gpu_us, 0) end as left_gpu_us,
    coalesce(b.funded_gpu_us, 0) as funded_gpu_us, coalesce(b.unfunded_gpu_us, 0) as unfunded_gpu_us,
    coalesce(b.running_milli, 0) as running_milli, coalesce(b.funded_milli, 0) as funded_milli,
    coalesce(b.pending_milli, 0) as pending_milli,
    -- at the rate of this moment; null: it does not run dry
    case when m.metered_ms is not null and b.funded_milli > 0 then
        greatest(0, m.granted_gpu_us + m.transferred_gpu_us - m.lapsed_gpu_us - coalesce(c.charged_gpu_us, 0) + coalesce(f.refunded_gpu_us, 0)) // b.funded_milli
    end as lasts_ms,
    l.time_ms as since_ms, l.seq as since_seq, l.principal as author, l.reason
from line as l
left join moved as m using (pool, budget)
left join charged as c using (pool, budget)
left join refunded as f using (pool, budget)
left join reserved as r using (pool, budget)
left join burn as b using (pool, budget)
where $pool is null or l.pool = $pool
order by l.pool, l.budget
