-- Was every run placed in a pool that its workload names and that can take it, and did it wait again at home or where it ran?
with accepted as (
    select workload, pool, pool as home from fact.decision where type = 'workload.admitted' and seq <= $seq
    union all
    select workload, unnest(from_json(body->'$.others', '["varchar"]')), pool
    from fact.decision where type = 'workload.admitted' and seq <= $seq and json_exists(body, '$.others')
)
select d.seq, d.position, d.workload, d.run, d.pool
from fact.decision as d anti join accepted as a on a.workload = d.workload and a.pool = d.pool
where d.type in ('run.placed', 'run.closed') and d.seq <= $seq
union all
select d.seq, d.position, d.workload, d.run, d.body->>'$.waits_in'
from fact.decision as d anti join accepted as a on a.workload = d.workload and a.home = d.body->>'$.waits_in'
where d.type in ('run.closed', 'gpus.reserved') and d.seq <= $seq and json_exists(d.body, '$.waits_in')
