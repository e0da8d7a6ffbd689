-- What happened to one budget: versions, grants, transfers, members, and burn by day?
-- budget varchar
-- pool varchar null
with instant as (
    select pool, from_ms as at_ms from dim.budget_version where budget = $budget and seq <= $seq and from_ms > $as_of_ms
    union
    select pool, until_ms from dim.budget_version where budget = $budget and seq <= $seq and until_ms > $as_of_ms
    union
    select distinct pool, $as_of_ms from dim.budget_version where budget = $budget and seq <= $seq
),
ahead as (
    -- what is planned: at each instant the last event that covers it; none: no share
    select i.pool, i.at_ms, v.seq, v.principal, v.reason, coalesce(v.share_ppm, 0) as share_ppm, coalesce(v.closed, false) as closed
    from instant as i left join dim.budget_version as v
        on v.pool = i.pool and v.budget = $budget and v.seq <= $seq and v.from_ms <= i.at_ms and (v.until_ms = 0 or i.at_ms < v.until_ms)
    qualify row_number() over (partition by i.pool, i.at_ms order by v.seq desc nulls last) = 1
),
line as (
    select 0 as section_order, 'version' as section, seq, time_ms, pool, budget, principal, reason, share_ppm,
        case when closed then 'closed' else 'set' end as what, '' as member, 0 as gpu_us, 0 as unfunded_gpu_us, from_ms, until_ms
    from dim.budget_version where budget = $budget and seq <= $seq
    union all
    select 0, 'planned', seq, at_ms, pool, $budget, coalesce(principal, ''), coalesce(reason, 'its time is over'), share_ppm,
        case when closed then 'closed' else 'set' end, '', 0, 0, at_ms, 0
    from (select *, at_ms > $as_of_ms and seq is distinct from lag(seq) over (partition by pool order by at_ms) as changes from ahead)
    where changes
    union all
    -- what the calendar brings and takes is a decision; its author is whoever scheduled it
    select 1, l.kind, l.seq, l.time_ms, l.pool, l.budget, e.principal, coalesce(e.body->>'$.data.reason', ''), null, l.kind, '', l.amount_gpu_us, 0, 0, 0
    from fact.ledger as l
    left join fact.decision as d on d.seq = l.seq and d.position = l.position and d.type = 'grant.issued'
    left join raw.event_log as e on e.seq = coalesce(d.event_seq, l.seq)
    where l.budget = $budget and l.account = 'budget' and l.kind in ('grant', 'withdrawal', 'transfer', 'lapse') and l.seq <= $seq
    union all
    select 1, 'schedule', seq, time_ms, pool, budget, principal, reason, null,
        period || case carry when 'none' then '' when 'all' then ', all is carried over'
            else ', at most ' || format('{:g}', carry_cap_ppm / 10000.0) || ' % is carried over' end,
        '', gpu_us, 0, from_ms, until_ms
    from dim.grant_schedule where budget = $budget and seq <= $seq
    union all
    -- roles hold for everything below the path they were given on
    select 2, 'member', seq, time_ms, '', budget, principal, reason, null, role, member, 0, 0, 0, 0
    from dim.member
    where held and seq <= $seq and coalesce(valid_to_seq > $seq, true) and ($budget = budget or starts_with($budget, budget || '/'))
    union all
    select 3, 'burn', day * 86400000, day * 86400000, pool, $budget, '', '', null, strftime(make_timestamp(day * 86400000000), '%Y-%m-%d'),
        '', sum(case when payer = 'budget' then gpu_us else 0 end)::bigint, sum(case when payer = 'budget' then 0 else gpu_us end)::bigint,
        0, 0
    from (
        select pool, payer, day, gpus_milli * (least(end_ms, (day + 1) * 86400000) - greatest(start_ms, day * 86400000)) as gpu_us
        from (
            select *, unnest(range(start_ms // 86400000, (end_ms - 1) // 86400000 + 1)) as day
            from mart.alloc_at($seq, $as_of_ms)
            where end_ms > start_ms and (budget = $budget or starts_with(budget, $budget || '/'))
        )
    )
    group by pool, day
)
select section, case when section <> 'burn' then seq end as seq, time_ms, pool, budget, what, share_ppm, gpu_us, unfunded_gpu_us, member,
    nullif(from_ms, 0) as from_ms, nullif(until_ms, 0) as until_ms, principal, reason
from line
where $pool is null or pool = $pool or pool = ''
order by section_order, line.seq, pool
