-- What part of each pool's time is every budget entitled to, and what did it get?
-- pool varchar null
with burn as (
    select * from mart.burn_at($seq, $as_of_ms)
),
line as (
    select *, not exists (select 1 from mart.budget_at($seq, $as_of_ms) as c where c.pool = b.pool and c.parent = b.budget and not c.closed) as is_leaf
    from mart.budget_at($seq, $as_of_ms) as b
),
supply as (
    select pool, supply_gpu_us, funded_gpu_us + unfunded_gpu_us as used_gpu_us from fact.books where seq = $seq
),
total as (
    select l.pool, l.budget, l.parent, l.level, l.is_leaf, l.closed, l.share_ppm, l.entitled_ppm,
        coalesce(sum(b.funded_gpu_us), 0)::bigint as funded_gpu_us, coalesce(sum(b.unfunded_gpu_us), 0)::bigint as unfunded_gpu_us,
        coalesce(sum(b.running_milli), 0)::bigint as running_milli, coalesce(sum(b.funded_milli), 0)::bigint as funded_milli,
        coalesce(sum(b.pending_milli), 0)::bigint as pending_milli, coalesce(sum(b.pending_count), 0)::bigint as pending_count
    from line as l
    left join burn as b on b.pool = l.pool and (b.budget = l.budget or starts_with(b.budget, l.budget || '/'))
    group by all
)
select t.pool, t.budget, t.parent, t.level, t.is_leaf, t.closed, t.share_ppm, t.entitled_ppm,
    mart.ppm(t.funded_gpu_us + t.unfunded_gpu_us, s.supply_gpu_us) as got_ppm,
    mart.ppm(t.funded_gpu_us + t.unfunded_gpu_us, s.used_gpu_us) as got_of_used_ppm,
    t.funded_gpu_us, t.unfunded_gpu_us, t.running_milli, t.funded_milli, t.pending_milli, t.pending_count
from total as t left join supply as s using (pool)
where $pool is null or t.pool = $pool
order by t.pool, t.budget
