-- What did each budget line get itself (without those below it)? The lines add up to all charged time.
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
)
select l.pool, l.budget, case when l.is_leaf then l.entitled_ppm else 0 end as entitled_ppm,
    mart.ppm(coalesce(b.funded_gpu_us, 0) + coalesce(b.unfunded_gpu_us, 0), s.supply_gpu_us) as got_ppm,
    mart.ppm(coalesce(b.funded_gpu_us, 0) + coalesce(b.unfunded_gpu_us, 0), s.used_gpu_us) as got_of_used_ppm,
    coalesce(b.funded_gpu_us, 0) as funded_gpu_us, coalesce(b.unfunded_gpu_us, 0) as unfunded_gpu_us,
    coalesce(b.running_milli, 0) as running_milli, coalesce(b.pending_milli, 0) as pending_milli
from line as l
left join burn as b using (pool, budget)
left join supply as s on s.pool = l.pool
where ($pool is null or l.pool = $pool) and (l.is_leaf or coalesce(b.funded_gpu_us, 0) <> 0 or coalesce(b.unfunded_gpu_us, 0) <> 0)
order by l.pool, l.budget
