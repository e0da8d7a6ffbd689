-- What waits or runs, in which place of its budget's queue, and why?
-- state varchar 'pending': pending, placed, running, stopping, or all
-- budget varchar null: this budget and those below it
-- principal varchar null: submitted by
-- pool varchar null
-- row_limit bigint 1000
with live as (
    select s.workload, s.state, s.run, s.pool, s.budget, s.from_seq, s.from_ms,
        w.name, w.principal, w.kind, w.gpus_milli, w.nodes, w.min_runtime_ms, w.expected_runtime_ms,
        w.seq as submitted_seq, w.time_ms as submitted_ms,
        coalesce((select arg_max(p.priority, p.seq) from fact.priority as p where p.workload = s.workload and p.seq <= $seq), w.priority)
            + if(w.service <> '', 2000001, 0) as priority
    from mart.state_at($seq) as s join fact.workload as w using (workload)
),
placed as (
    select *, case when state = 'pending' then row_number() over (
        partition by pool, budget, state order by priority desc, submitted_seq) end as position
    from live
),
reason as (
    select p.workload, arg_max(p.reason, (p.seq, p.position)) as reason, arg_max(p.numbers, (p.seq, p.position)) as numbers,
        max(p.time_ms) as explained_ms
    from fact.pending_reason as p join live as l on l.workload = p.workload and l.state = 'pending' and p.seq >= l.from_seq
    where p.seq <= $seq group by p.workload
),
paying as (
    select workload, any_value(payer) as payer, any_value(why) as why, max(protected_until_ms) as protected_until_ms, list(distinct node order by node) as on_nodes
    from mart.held_at($seq) group by workload
)
select p.position, p.workload, p.name, p.state, p.run, p.pool, p.budget, p.principal, p.kind, p.gpus_milli, p.nodes, p.priority,
    $as_of_ms - p.submitted_ms as age_ms, p.submitted_ms, p.submitted_seq, p.from_ms as since_ms,
    coalesce(r.reason, y.why) as reason, r.numbers, r.explained_ms, (r.numbers->>'$.funded_since_ms')::bigint as funded_since_ms,
    y.payer, case when y.payer is not null then mart.standing(y.payer, y.protected_until_ms, $as_of_ms) end as standing,
    y.protected_until_ms, y.on_nodes, p.min_runtime_ms, p.expected_runtime_ms
from placed as p
left join reason as r using (workload)
left join paying as y using (workload)
where ($state = 'all' or p.state = $state)
    and ($budget is null or p.budget = $budget or starts_with(p.budget, $budget || '/'))
    and ($principal is null or p.principal = $principal)
    and ($pool is null or p.pool = $pool)
order by p.pool, p.budget, p.state <> 'pending' desc, p.position, p.submitted_seq
limit $row_limit
