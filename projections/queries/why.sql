-- Why does a workload wait (or run as it does): the reasons over time, its budget's allowance, and what ran instead?
-- workload varchar
-- row_limit bigint 10: of what ran instead
-- one row each, and said so: joins then begin there, not with all decisions
with it as materialized (
    select * from fact.workload where workload = mart.workload_named($workload, $seq) and greatest(seq, admitted_seq) <= $seq limit 1
),
now as materialized (
    select s.* from mart.state_at($seq) as s join it using (workload) limit 1
),
here as materialized (
    -- it may accept several pools: where it is now
    select coalesce((select pool from now), (select pool from it)) as pool
),
waits_since as materialized (
    select coalesce((select from_seq from now where state = 'pending'), (select admitted_seq from it)) as seq
),
spoken as materialized (
    -- every decision that tells the allowance of this workload's budget in the pool where it is
    select d.seq, d.position, d.time_ms, d.workload, d.reason, d.payer,
        coalesce((d.body->>'$.allowance_milli')::bigint, 0) as allowance_milli,
        coalesce((d.body->>'$.running_milli')::bigint, (d.body->>'$.before_milli')::bigint, 0) as running_milli
    from fact.decision as d join it on d.budget = it.budget
    where d.seq <= $seq and (
        (d.type = 'run.placed' and d.pool = (select pool from here))
        or (d.type = 'funding.changed' and exists (
            select 1 from fact.decision as r
            where r.type = 'run.placed' and r.workload = d.workload and r.run = d.run and r.pool = (select pool from here))))
),
place as materialized (
    select position from (
        select s.workload, row_number() over (order by coalesce(
            (select arg_max(p.priority, p.seq) from fact.priority as p where p.workload = s.workload and p.seq <= $seq), w.priority)
                + if(w.service <> '', 2000001, 0) desc,
            w.seq) as position
        from mart.state_at($seq) as s join fact.workload as w using (workload) join it on it.budget = s.budget
        where s.state = 'pending' and s.pool = (select pool from here)
    ) where workload = (select workload from it)
),
line as (
    select 0 as section_order, 'now' as section, now.from_seq as seq, 0 as position, now.from_ms as time_ms, it.workload, it.budget,
        now.state as reason, coalesce((select any_value(payer) from mart.held_at($seq) as h where h.workload = it.workload), '') as payer,
        it.gpus_milli,
        to_json({'position': (select position from place), 'submitted_ms': it.time_ms, 'min_runtime_ms': it.min_runtime_ms,
            'nodes': it.nodes, 'run': now.run, 'pool': now.pool, 'home': it.pool, 'idle_since_ms': coalesce((
                select arg_max((d.body->>'$.since_ms')::bigint, (d.seq, d.position)) from fact.decision as d
                where d.type = 'run.idle' and d.workload = it.workload and d.run = now.run and d.seq <= $seq), 0)}) as numbers
    from it join now using (workload)
    union all
    select 1, 'ended', e.seq, 0, e.time_ms, it.workload, it.budget, e.outcome, '', it.gpus_milli, to_json({'runs': e.runs})
    from fact.workload_end as e join it using (workload) where e.seq <= $seq
    union all
    select 2, 'reason', p.seq, p.position, p.time_ms, p.workload, it.budget, p.reason, '', it.gpus_milli, p.numbers
    from fact.pending_reason as p join it using (workload) where p.seq <= $seq
    union all
    select 3, 'budget', s.seq, s.position, s.time_ms, s.workload, it.budget, s.reason, s.payer, it.gpus_milli,
        to_json({'allowance_milli': s.allowance_milli, 'running_milli': s.running_milli,
            'held_milli': coalesce((select sum(gpus_milli)::bigint from mart.held_at($seq) as h
                where h.pool = (select pool from here) and h.budget = it.budget), 0),
            'entitled_ppm': (select entitled_ppm from mart.budget_at($seq, $as_of_ms) as b where b.pool = (select pool from here) and b.budget = regexp_replace(it.budget, '/~[^/]*$', ''))})
    from (select * from spoken order by seq desc, position desc limit 1) as s, it
    union all
    -- why it did not start in the other pools that it accepts, as told last while it waits
    select 6, 'elsewhere', p.seq, 100 - p.place, p.time_ms, it.workload, it.budget, p.other->>'$.reason', '', it.gpus_milli,
        json_merge_patch(coalesce(p.other->'$.numbers', '{}'), json_object('pool', p.other->>'$.pool'))
    from (
        select r.seq, r.time_ms, unnest(r.elsewhere::json[]) as other, generate_subscripts(r.elsewhere::json[], 1) as place
        from (
            select r.* from fact.pending_reason as r join it using (workload)
            where r.seq <= $seq order by r.seq desc, r.position desc limit 1
        ) as r
    ) as p, it
    where exists (select 1 from now where state = 'pending' and from_seq <= p.seq)
    union all
    -- pools that it named and that can never take it
    select 7, 'skipped', a.seq, 0, a.time_ms, it.workload, it.budget, a.skipped->>a.name, '', it.gpus_milli, json_object('pool', a.name)
    from (
        select d.seq, d.time_ms, d.body->'$.skipped' as skipped, unnest(json_keys(d.body->'$.skipped')) as name
        from fact.decision as d join it using (workload) where d.type = 'workload.admitted' and d.seq <= $seq
    ) as a, it
    union all
    -- what was last proposed to be moved so that it starts; none while it runs or no such moves are known
    select 5, 'moves', m.seq, m.position, m.time_ms, m.workload, it.budget, '', '', it.gpus_milli, m.body::json
    from (
        select d.* from fact.decision as d join it using (workload)
        where d.type = 'moves.proposed' and d.seq <= $seq order by d.seq desc, d.position desc limit 1
    ) as m, it
    where exists (select 1 from now where state = 'pending') and json_exists(m.body, '$.moves')
        and not exists (select 1 from fact.decision as r where r.workload = m.workload and r.type in ('gpus.reserved', 'run.placed')
            and (r.seq, r.position) > (m.seq, m.position) and r.seq <= $seq)
    union all
    select 4, 'instead', d.seq, d.position, d.time_ms, d.workload, d.budget, d.reason, d.payer, d.gpus_milli,
        to_json({'allowance_milli': coalesce((d.body->>'$.allowance_milli')::bigint, 0),
            'running_milli': coalesce((d.body->>'$.running_milli')::bigint, 0)})
    from (
        select d.* from fact.decision as d, it
        where d.type = 'run.placed' and d.pool = (select pool from here) and d.workload <> it.workload and d.seq <= $seq
            and d.seq >= (select seq from waits_since) and exists (select 1 from now where state = 'pending')
        order by d.seq desc, d.position desc limit $row_limit
    ) as d
)
select section, seq, time_ms, workload, budget, reason, payer, gpus_milli, numbers
from line
order by section_order, seq desc, position desc
