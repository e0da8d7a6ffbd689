-- How large is each realtime service, how large should it be, and why?
-- workload varchar null
-- budget varchar null: this budget and those below it
-- pool varchar null
with live as (
    select s.*, w.name, w.principal from fact.service as s join fact.workload as w on w.workload = s.workload and w.seq = s.seq
    where s.admitted_seq <= $seq and s.workload not in (select workload from fact.workload_end where seq <= $seq)
),
size as (
    select workload, arg_max(replicas, (seq, position)) as replicas, arg_max(why, (seq, position)) as why,
        arg_max(bound, (seq, position)) as bound, arg_max(need, (seq, position)) as need, max(time_ms) as since_ms,
        count(*) as resizes
    from fact.resize where seq <= $seq group by workload
),
seen as (
    select workload, arg_max(traffic_milli, seq) as traffic_milli, max(time_ms) as observed_ms
    from fact.demand where seq <= $seq group by workload
),
having_ as (
    select w.service as workload, count(*) filter (s.state in ('placed', 'running')) as running,
        count(*) filter (s.state = 'pending') as pending, count(*) filter (s.state = 'stopping') as stopping
    from mart.state_at($seq) as s join fact.workload as w using (workload) where w.service <> '' group by w.service
),
total as (
    select l.workload, l.name, l.principal, l.pool, l.budget, l.gpus_milli, l.min_replicas, l.max_replicas, l.gpus_milli_per_traffic,
        l.swap_replicas, l.startup_ms, l.hold_ms, l.penalty, coalesce(z.replicas, 0) as replicas, coalesce(h.running, 0) as running,
        coalesce(h.pending, 0) as pending, coalesce(h.stopping, 0) as stopping, z.why, z.need as said_need, coalesce(z.bound, '') as bound, z.since_ms,
        coalesce(z.resizes, 0) as resizes, v.traffic_milli, v.observed_ms,
        -- what its traffic needs now, whatever it may have
        (v.traffic_milli::hugeint * l.gpus_milli_per_traffic + 1000::hugeint * l.gpus_milli - 1) // (1000::hugeint * l.gpus_milli) as need
    from live as l left join size as z using (workload) left join seen as v using (workload) left join having_ as h using (workload)
)
select * replace (if(need is not null, least(need, 9223372036854775807), null)::bigint as need), greatest(coalesce(need, 0) - running, 0)::bigint as unmet_replicas
from total
where ($workload is null or workload = mart.workload_named($workload, $seq))
    and ($budget is null or budget = $budget or starts_with(budget, $budget || '/'))
    and ($pool is null or pool = $pool)
order by pool, budget, workload
