-- Who used how much GPU time, by any of day (UTC), pool, budget, user and kind?
-- by_day boolean true
-- by_pool boolean false
-- by_budget boolean true
-- by_user boolean false
-- by_kind boolean false
-- weighted boolean false: count a GPU of each pool by the pool's weight, so that sums over pools mean something
-- since_ms bigint null
-- until_ms bigint null
-- budget varchar null: this budget and those below it
-- principal varchar null
-- pool varchar null
with clipped as (
    select pool, budget, principal, kind, payer, gpus_milli,
        greatest(start_ms, coalesce($since_ms, 0)) as start_ms, least(end_ms, coalesce($until_ms, $as_of_ms)) as end_ms
    from mart.alloc_at($seq, $as_of_ms)
    where end_ms > coalesce($since_ms, 0) and start_ms < coalesce($until_ms, $as_of_ms + 1)
),
split as (
    -- most intervals stay within a day; only the others are cut at midnight
    select start_ms // 86400000 as day, pool, budget, principal, kind, payer, gpus_milli * (end_ms - start_ms) as gpu_us
    from clipped
    where not $by_day or start_ms // 86400000 = (end_ms - 1) // 86400000 or end_ms = start_ms
    union all
    select day, pool, budget, principal, kind, payer,
        gpus_milli * (least(end_ms, (day + 1) * 86400000) - greatest(start_ms, day * 86400000))
    from (
        select *, unnest(range(start_ms // 86400000, (end_ms - 1) // 86400000 + 1)) as day
        from clipped
        where $by_day and end_ms > start_ms and start_ms // 86400000 <> (end_ms - 1) // 86400000
    )
),
weight as (
    select pool, arg_max(weight_milli, seq) as weight_milli from dim.policy_version where seq <= $seq group by pool
),
line as (
    select day, pool, budget, principal, kind, case when payer = 'budget' then gpu_us else 0 end as funded_gpu_us,
        case when payer = 'budget' then 0 else gpu_us end as unfunded_gpu_us, 0 as refunded_gpu_us, 0 as unfunded_refunded_gpu_us
    from split
    union all
    -- refunds count on the day the run ended
    select end_ms // 86400000, pool, budget, principal, kind, 0, 0, refunded_gpu_us, unfunded_refunded_gpu_us
    from fact.run_closed
    where closed_seq <= $seq and refunded_gpu_us + unfunded_refunded_gpu_us > 0
        and end_ms >= coalesce($since_ms, 0) and end_ms < coalesce($until_ms, $as_of_ms + 1)
)
select
    case when $by_day then strftime(make_timestamp(day * 86400000000), '%Y-%m-%d') end as day,
    case when $by_pool then pool end as pool,
    case when $by_budget then budget end as budget,
    case when $by_user then principal end as user,
    case when $by_kind then kind end as kind,
    (sum((funded_gpu_us - refunded_gpu_us)::hugeint * counts) // 1000)::bigint as funded_gpu_us,
    (sum((unfunded_gpu_us - unfunded_refunded_gpu_us)::hugeint * counts) // 1000)::bigint as unfunded_gpu_us,
    (sum((refunded_gpu_us + unfunded_refunded_gpu_us)::hugeint * counts) // 1000)::bigint as refunded_gpu_us
from (select line.*, case when $weighted then weight_milli else 1000 end as counts from line join weight using (pool))
where ($budget is null or budget = $budget or starts_with(budget, $budget || '/'))
    and ($principal is null or principal = $principal)
    and ($pool is null or pool = $pool)
group by 1, 2, 3, 4, 5
order by 1, 2, 3, 4, 5
