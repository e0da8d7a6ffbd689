-- Does every block of a plan lie aligned on the GPUs of its pool, within the horizon, and do no two of them overlap in GPU and step?
with job as (
    select j.*, p.gpus as line, p.steps as horizon from fact.plan_job as j join fact.plan as p using (plan)
    where j.seq <= $seq and j.start <> -1
),
cell as (
    select plan, workload, start, start + steps as until, unnest(range(first, first + gpus)) as gpu from job
),
size as (
    -- each node takes as many places of the line as its pool's largest needs, a power of two
    select p.plan, p.gpus, count(*) as nodes, max(n.gpus) as most
    from fact.plan as p join dim.node as n on n.pool = p.pool and n.seq <= p.seq and coalesce(n.valid_to_seq > p.seq, true) and n.gpus > 0
    where p.seq <= $seq group by p.plan, p.gpus
)
select plan, workload, 'block' as what, first as gpu, start as step from job
where gpus < 1 or gpus & (gpus - 1) <> 0 or first < 0 or first % greatest(gpus, 1) <> 0 or first + gpus > line or start < 0
    or start >= horizon or steps < 1
union all
select plan, workload, 'overlap', gpu, start from cell
qualify lag(until) over (partition by plan, gpu order by start, workload) > start
union all
select plan, '', 'pool', gpus, 0 from size where gpus > nodes * (2 ** ceil(log2(most)))::bigint
