-- How did a service breathe: its traffic, the GPUs this needs, those it was to have and those it held, by step?
-- workload varchar
-- step_ms bigint 300000
-- since_ms bigint 0
with it as (
    select * from fact.service where workload = mart.workload_named($workload, $seq) and admitted_seq <= $seq
),
step as (
    select unnest(range((greatest(it.admitted_ms, $since_ms) // $step_ms), $as_of_ms // $step_ms + 1)) * $step_ms as from_ms from it
),
seen as (
    select d.time_ms // $step_ms * $step_ms as from_ms, max(d.traffic_milli) as most_milli, arg_max(d.traffic_milli, d.seq) as last_milli
    from fact.demand as d join it using (workload) where d.seq <= $seq group by all
),
sized as (
    select r.time_ms // $step_ms * $step_ms as from_ms, arg_max(r.replicas, (r.seq, r.position)) as replicas
    from fact.resize as r join it using (workload) where r.seq <= $seq group by all
),
run as (
    select r.placed_ms, r.end_ms, r.gpus_milli
    from mart.run_at($seq, $as_of_ms) as r join fact.workload as w using (workload) join it on w.service = it.workload
),
held as (
    -- milli-GPU x milliseconds in the step, over the step
    select s.from_ms,
        (sum(r.gpus_milli * greatest(least(r.end_ms, s.from_ms + $step_ms) - greatest(r.placed_ms, s.from_ms), 0)) // $step_ms)::bigint
            as held_milli
    from step as s join run as r on r.placed_ms < s.from_ms + $step_ms and r.end_ms > s.from_ms group by s.from_ms
)
select s.from_ms, v.most_milli as traffic_milli,
    -- least() passes over nulls
    if(v.most_milli is not null, least((v.most_milli::hugeint * it.gpus_milli_per_traffic + 1000::hugeint * it.gpus_milli - 1)
        // (1000::hugeint * it.gpus_milli) * it.gpus_milli, 9223372036854775807), null)::bigint as need_milli,
    last_value(z.replicas ignore nulls) over (order by s.from_ms) * it.gpus_milli as wanted_milli,
    coalesce(h.held_milli, 0) as held_milli
from step as s cross join it left join seen as v using (from_ms) left join sized as z using (from_ms) left join held as h using (from_ms)
order by s.from_ms
