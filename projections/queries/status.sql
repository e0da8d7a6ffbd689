-- What is each pool doing now, and how did it do over the last day and since the log began?
with now as (
    select pool, any_value(gpu_class) as gpu_class from dim.pool where seq <= $seq group by pool
),
books as (
    select * from fact.books where seq = $seq
),
day_ago as (
    select b.* from fact.books as b
    where b.seq = (select max(seq) from fact.cycle where seq <= $seq and time_ms <= $as_of_ms - 86400000)
),
supply as (
    select pool, count(*) as nodes, sum(gpus)::bigint * 1000 as installed_milli
    from mart.supply_at($seq, $as_of_ms) where is_open group by pool
),
held as (
    select pool, sum(gpus_milli)::bigint as running_milli, count(distinct (workload, run)) as running_count,
        sum(case when payer = 'budget' then gpus_milli else 0 end)::bigint as funded_milli
    from mart.held_at($seq) group by pool
),
used as (
    select pool, node, gpu, sum(milli_each)::bigint as used_milli
    from (select pool, node, milli_each, unnest(gpus) as gpu from mart.held_at($seq))
    group by all
),
out_gpu as (
    select node, unnest(gpus) as gpu from mart.out_at($seq, $as_of_ms) where is_open
),
gpu as (
    select s.pool, s.node, s.gpu, coalesce(u.used_milli, 0) as used_milli, o.node is not null as is_out
    from (select pool, node, unnest(range(gpus)) as gpu from mart.supply_at($seq, $as_of_ms) where is_open) as s
    left join used as u on u.node = s.node and u.gpu = s.gpu
    left join out_gpu as o on o.node = s.node and o.gpu = s.gpu
),
down as (
    select pool, sum(1000 - used_milli)::bigint as down_milli from gpu where is_out group by pool
),
block as (
    select g.pool, size, g.node, g.gpu // size as place
    from gpu as g, (select unnest([1, 2, 4, 8, 16, 32, 64]) as size) as sizes
    where not g.is_out and g.used_milli = 0
    group by g.pool, size, g.node, g.gpu // size
    having count(*) = size
),
blocks as (
    select pool, map_from_entries(list((size, free) order by size)) as free_blocks
    from (select pool, size, count(*) as free from block group by pool, size) group by pool
),
waiting as (
    select s.workload, s.pool, w.gpus_milli, s.from_seq
    from mart.state_at($seq) as s join fact.workload as w using (workload) where s.state = 'pending'
),
reason as (
    select p.workload, arg_max(p.reason, (p.seq, p.position)) as reason
    from fact.pending_reason as p join waiting as w on w.workload = p.workload and p.seq >= w.from_seq
    where p.seq <= $seq group by p.workload
),
pending as (
    select pool, sum(count)::bigint as pending_count, sum(milli)::bigint as pending_milli,
        map_from_entries(list((reason, count) order by reason)) as pending_by_reason
    from (
        select w.pool, coalesce(r.reason, 'none') as reason, count(*) as count, sum(w.gpus_milli)::bigint as milli
        from waiting as w left join reason as r using (workload) group by all
    ) group by pool
),
heard as (
    select pool, sum(busy_gpu_us)::bigint as busy_gpu_us, sum(covered_gpu_us)::bigint as covered_gpu_us,
        sum(case when bucket_ms >= $as_of_ms - 86400000 then busy_gpu_us else 0 end)::bigint as day_busy_gpu_us,
        sum(case when bucket_ms >= $as_of_ms - 86400000 then covered_gpu_us else 0 end)::bigint as day_covered_gpu_us
    from mart.heard_at($seq) group by pool
),
ended as (
    select pool, sum(useful_gpu_us)::bigint as useful_gpu_us,
        sum(charged_gpu_us + unfunded_gpu_us)::bigint as ended_gpu_us,
        sum(case when end_ms >= $as_of_ms - 86400000 then useful_gpu_us else 0 end)::bigint as day_useful_gpu_us,
        sum(case when end_ms >= $as_of_ms - 86400000 then charged_gpu_us + unfunded_gpu_us else 0 end)::bigint as day_ended_gpu_us
    from fact.run_closed where closed_seq <= $seq group by pool
),
total as (
    select n.pool, n.gpu_class, coalesce(s.nodes, 0) as nodes, coalesce(s.installed_milli, 0) as installed_milli,
        coalesce(d.down_milli, 0) as down_milli,
        coalesce(b.free_milli, 0) as idle_milli,
        coalesce(h.funded_milli, 0) as funded_milli,
        coalesce(h.running_milli, 0) - coalesce(h.funded_milli, 0) as unfunded_milli,
        coalesce(h.running_count, 0) as running_count,
        coalesce(p.pending_count, 0) as pending_count, coalesce(p.pending_milli, 0) as pending_milli,
        coalesce(p.pending_by_reason, map {}) as pending_by_reason,
        coalesce(k.free_blocks, map {}) as free_blocks,
        coalesce(b.supply_gpu_us, 0) as supply_gpu_us, coalesce(b.down_gpu_us, 0) as down_gpu_us,
        coalesce(b.idle_gpu_us, 0) as idle_gpu_us, coalesce(b.unfunded_gpu_us, 0) as unfunded_gpu_us,
        coalesce(b.funded_gpu_us, 0) as funded_gpu_us,
        coalesce(b.supply_gpu_us, 0) - coalesce(y.supply_gpu_us, 0) as day_supply_gpu_us,
        coalesce(b.down_gpu_us, 0) - coalesce(y.down_gpu_us, 0) as day_down_gpu_us,
        coalesce(b.idle_gpu_us, 0) - coalesce(y.idle_gpu_us, 0) as day_idle_gpu_us,
        coalesce(b.unfunded_gpu_us, 0) - coalesce(y.unfunded_gpu_us, 0) as day_unfunded_gpu_us,
        coalesce(b.funded_gpu_us, 0) - coalesce(y.funded_gpu_us, 0) as day_funded_gpu_us,
        e.useful_gpu_us, e.ended_gpu_us, e.day_useful_gpu_us, e.day_ended_gpu_us,
        t.busy_gpu_us, t.covered_gpu_us, t.day_busy_gpu_us, t.day_covered_gpu_us
    from now as n
    left join supply as s using (pool)
    left join held as h using (pool)
    left join down as d using (pool)
    left join books as b on b.pool = n.pool
    left join day_ago as y on y.pool = n.pool
    left join pending as p using (pool)
    left join blocks as k using (pool)
    left join ended as e using (pool)
    left join heard as t using (pool)
)
select * exclude (useful_gpu_us, ended_gpu_us, day_useful_gpu_us, day_ended_gpu_us, busy_gpu_us, covered_gpu_us, day_busy_gpu_us,
        day_covered_gpu_us),
    -- the pillars: is it up, is it assigned, did what ran lead to something, did the GPUs compute; and how much of that is known
    mart.ppm(supply_gpu_us - down_gpu_us, supply_gpu_us) as availability_ppm,
    mart.ppm(funded_gpu_us + unfunded_gpu_us, supply_gpu_us - down_gpu_us) as occupancy_ppm,
    mart.ppm(useful_gpu_us, ended_gpu_us) as impact_ppm,
    mart.ppm(busy_gpu_us::hugeint * supply_gpu_us, (funded_gpu_us + unfunded_gpu_us)::hugeint * covered_gpu_us) as utilization_ppm,
    mart.ppm(covered_gpu_us, supply_gpu_us) as coverage_ppm,
    mart.ppm(day_supply_gpu_us - day_down_gpu_us, day_supply_gpu_us) as day_availability_ppm,
    mart.ppm(day_funded_gpu_us + day_unfunded_gpu_us, day_supply_gpu_us - day_down_gpu_us) as day_occupancy_ppm,
    mart.ppm(day_useful_gpu_us, day_ended_gpu_us) as day_impact_ppm,
    mart.ppm(day_busy_gpu_us::hugeint * day_supply_gpu_us, (day_funded_gpu_us + day_unfunded_gpu_us)::hugeint * day_covered_gpu_us)
        as day_utilization_ppm,
    mart.ppm(day_covered_gpu_us, day_supply_gpu_us) as day_coverage_ppm
from total
order by pool
