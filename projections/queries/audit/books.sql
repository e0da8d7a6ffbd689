-- Do the core's own books after the last cycle equal the sums of the intervals, per pool?
with supply as (
    select pool, sum(gpus * 1000 * (to_ms - from_ms))::bigint as supply from mart.supply_at($seq, $as_of_ms) group by pool
),
used as (
    select pool, sum(case when payer = 'budget' then gpu_us else 0 end)::bigint as funded,
        sum(case when payer = 'budget' then 0 else gpu_us end)::bigint as unfunded
    from mart.alloc_at($seq, $as_of_ms) group by pool
),
back as (
    select pool, sum(refunded_gpu_us)::bigint as funded, sum(unfunded_refunded_gpu_us)::bigint as unfunded
    from fact.run_closed where closed_seq <= $seq group by pool
),
out_of_service as (
    select pool, sum(len(gpus) * 1000 * (to_ms - from_ms))::bigint as down from mart.out_at($seq, $as_of_ms) group by pool
),
held_while_out as (
    select o.pool, sum(len(list_intersect(o.gpus, a.gpus)) * a.milli_each * (least(o.to_ms, a.end_ms) - greatest(o.from_ms, a.start_ms)))::bigint as milli
    from mart.out_at($seq, $as_of_ms) as o join mart.alloc_at($seq, $as_of_ms) as a
        on a.node = o.node and a.start_ms < o.to_ms and a.end_ms > o.from_ms
    group by o.pool
),
derived as (
    select p.pool, coalesce(s.supply, 0) as supply,
        coalesce(o.down, 0) - coalesce(h.milli, 0) + coalesce(b.funded, 0) + coalesce(b.unfunded, 0) as down,
        coalesce(u.funded, 0) - coalesce(b.funded, 0) as funded, coalesce(u.unfunded, 0) - coalesce(b.unfunded, 0) as unfunded
    from (select distinct pool from dim.pool where seq <= $seq) as p
    left join supply as s using (pool) left join used as u using (pool) left join back as b using (pool)
    left join out_of_service as o using (pool) left join held_while_out as h using (pool)
)
select d.pool, d.supply, k.supply_gpu_us, d.down, k.down_gpu_us, d.funded, k.funded_gpu_us, d.unfunded, k.unfunded_gpu_us,
    d.supply - d.down - d.funded - d.unfunded as idle, k.idle_gpu_us
from derived as d full join (select * from fact.books where seq = $seq) as k on k.pool = d.pool
where d.pool is null or k.pool is null or d.supply <> k.supply_gpu_us or d.down <> k.down_gpu_us or d.funded <> k.funded_gpu_us
    or d.unfunded <> k.unfunded_gpu_us or d.supply - d.down - d.funded - d.unfunded <> k.idle_gpu_us
