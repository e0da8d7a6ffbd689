-- Nouns that are made out of stored rows. An inner row holds from its seq on; valid_to_seq is null while it holds.

create view dim.budget as
select *,
    lead(seq) over (partition by pool, budget order by seq) as valid_to_seq,
    lead(time_ms) over (partition by pool, budget order by seq) as valid_to_ms
from dim.budget_version;

create view dim.node as
select *,
    lead(seq) over (partition by node order by seq) as valid_to_seq,
    lead(time_ms) over (partition by node order by seq) as valid_to_ms
from dim.node_version;

create view dim.member as
select *,
    lead(seq) over (partition by budget, member, role order by seq) as valid_to_seq,
    lead(time_ms) over (partition by budget, member, role order by seq) as valid_to_ms
from dim.member_version;

create view dim.policy as
select *,
    lead(seq) over (partition by pool order by seq) as valid_to_seq
from dim.policy_version;

create view fact.books as
select seq, time_ms, b.pool, b.supply as supply_gpu_us, b.down as down_gpu_us, b.idle as idle_gpu_us,
    b.unfunded as unfunded_gpu_us, b.funded as funded_gpu_us,
    coalesce(b.pending_milli, 0) as pending_milli, coalesce(b.free_milli, 0) as free_milli
from (
    select seq, time_ms, unnest(from_json(books, '[{"pool": "VARCHAR", "supply": "BIGINT", "down": "BIGINT",
        "idle": "BIGINT", "unfunded": "BIGINT", "funded": "BIGINT", "pending_milli": "BIGINT", "free_milli": "BIGINT"}]')) as b
    from fact.cycle
);

create view fact.rejection as
select d.seq, d.position, d.time_ms, d.event_seq, d.reason,
    case when d.type = 'workload.rejected' then 'workload.submitted' else d.body->>'$.event_type' end as event_type,
    d.body->>'$.principal' as principal,
    case when d.type = 'workload.rejected' then d.workload else coalesce(d.body->>'$.entity', '') end as entity,
    coalesce(d.body->>'$.field', '') as field,
    coalesce(d.body->>'$.detail', '') as detail,
    coalesce(d.body->'$.numbers', '{}') as numbers
from fact.decision as d
where d.type in ('rejected', 'workload.rejected');

create view fact.pending_reason as
select seq, position, time_ms, workload, reason, coalesce(body->'$.numbers', '{}') as numbers,
    coalesce(body->'$.elsewhere', '[]') as elsewhere  -- the same of other pools that it accepts
from fact.decision
where type = 'pending.explained';

create view fact.workload_end as
select seq, position, time_ms, workload, reason as outcome, (body->>'$.runs')::bigint as runs, event_seq
from fact.decision
where type = 'workload.closed';

-- GPUs that are held for a workload until it starts; no pieces: the hold is given up.
create view fact.reservation as
select seq, position, time_ms, workload, body->'$.pieces' as pieces
from fact.decision
where type = 'gpus.reserved';

create view fact.certificate as
select d.seq, d.position, d.time_ms, d.workload as victim, d.run as victim_run,
    (d.body->>'$.grace_until_ms')::bigint as grace_until_ms,
    c->>'$.beneficiary' as beneficiary,
    c->>'$.beneficiary_budget' as beneficiary_budget,
    (c->>'$.beneficiary_gpus_milli')::bigint as beneficiary_gpus_milli,
    (c->>'$.beneficiary_running_milli')::bigint as beneficiary_running_milli,
    (c->>'$.beneficiary_allowance_milli')::bigint as beneficiary_allowance_milli,
    c->>'$.victim_budget' as victim_budget,
    (c->>'$.victim_gpus_milli')::bigint as victim_gpus_milli,
    (c->>'$.victim_running_milli')::bigint as victim_running_milli,
    (c->>'$.victim_allowance_milli')::bigint as victim_allowance_milli,
    (c->>'$.ran_ms')::bigint as ran_ms,
    (c->>'$.lost_gpu_us')::bigint as lost_gpu_us,
    (c->>'$.freed_milli')::bigint as freed_milli,
    (c->>'$.needed_milli')::bigint as needed_milli,
    coalesce(c->>'$.policy', 'fair') as policy,
    c->'$.numbers' as numbers
from (select *, body->'$.certificate' as c from fact.decision where type = 'run.preempted') as d;
