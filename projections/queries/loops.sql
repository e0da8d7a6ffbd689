-- Which budgets, or which workloads, took GPUs from each other in both directions, how often, and how soon after each other?
-- since_ms bigint 0
-- within_ms bigint null: only pairs whose shortest way there and back took less than this
with taken as (
    select c.seq, c.position, c.time_ms, c.lost_gpu_us, r.pool, c.victim_budget, c.beneficiary_budget, c.victim, c.beneficiary
    from fact.certificate as c join mart.run_at($seq, $as_of_ms) as r on r.workload = c.victim and r.run = c.victim_run
    where c.seq <= $seq and c.time_ms >= $since_ms
),
pair as (
    select 'budgets' as what, seq, position, time_ms, lost_gpu_us, pool, least(victim_budget, beneficiary_budget) as one,
        greatest(victim_budget, beneficiary_budget) as other, victim_budget < beneficiary_budget as forth
    from taken where victim_budget <> beneficiary_budget
    union all
    select 'workloads', seq, position, time_ms, lost_gpu_us, pool, least(victim, beneficiary), greatest(victim, beneficiary), victim < beneficiary
    from taken
),
turn as (
    select *, case when forth then max(time_ms) filter (not forth) over before_it else max(time_ms) filter (forth) over before_it end as back_ms
    from pair
    window before_it as (partition by what, pool, one, other order by seq, position)
)
select what, pool, one, other, count(*) filter (forth) as other_took, count(*) filter (not forth) as one_took,
    min(time_ms - back_ms) as shortest_ms, max(time_ms) as last_ms, sum(lost_gpu_us)::bigint as lost_gpu_us
from turn
group by what, pool, one, other
having count(*) filter (forth) > 0 and count(*) filter (not forth) > 0 and ($within_ms is null or min(time_ms - back_ms) < $within_ms)
order by shortest_ms, what, pool, one, other
