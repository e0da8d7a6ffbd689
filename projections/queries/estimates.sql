-- How did what was told of starts hold: who started by the instant told first, and how far off was it?
-- budget varchar null: this budget and those below it
-- since_ms bigint 0: told since
with told as materialized (
    -- few of many: read before anything is taken out of their bodies
    select d.workload, s.budget, d.seq, d.time_ms, d.reason, d.body
    from (
        select workload, any_value(budget) as budget from fact.workload
        where $budget is null or budget = $budget or starts_with(budget, $budget || '/') group by workload
    ) as s
    join fact.decision as d on d.workload = s.workload and d.type = 'pending.explained' and d.seq <= $seq and d.time_ms >= $since_ms
),
said as (
    select workload, budget, seq, time_ms,
        case when coalesce((body->>'$.numbers.planned_ms')::bigint, 0) > 0 then 'plan' else 'reservation' end as basis,
        coalesce(nullif((body->>'$.numbers.planned_ms')::bigint, 0), (body->>'$.numbers.earliest_ms')::bigint) as told_ms
    from told
    where coalesce((body->>'$.numbers.planned_ms')::bigint, 0) > 0
        -- with any other reason the instant is that of somebody else, for whom GPUs are kept
        or (reason = 'protected_runs' and coalesce((body->>'$.numbers.earliest_ms')::bigint, 0) > 0)
),
first_said as (
    select workload, any_value(budget) as budget, arg_min(basis, seq) as basis, arg_min(told_ms, seq) as told_ms, min(seq) as seq,
        min(time_ms) as said_ms
    from said where told_ms > time_ms group by workload
),
came as (
    select f.*, (
        select min(r.placed_ms) from mart.run_at($seq, $as_of_ms) as r where r.workload = f.workload and r.placed_seq > f.seq
    ) as placed_ms
    from first_said as f
)
select basis, count(*) as told, count(placed_ms) as started, count(*) filter (placed_ms is null and told_ms >= $as_of_ms) as to_come,
    count(*) filter (placed_ms is null and told_ms < $as_of_ms) as overdue,
    count(*) filter (placed_ms <= told_ms + 60000) as in_time, -- a minute is a cycle's patience
    quantile_disc(placed_ms - told_ms, 0.5)::bigint as median_late_ms, quantile_disc(placed_ms - told_ms, 0.9)::bigint as p90_late_ms,
    quantile_disc(told_ms - said_ms, 0.5)::bigint as median_ahead_ms
from came group by basis order by basis
