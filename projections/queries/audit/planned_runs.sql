-- Was every batch run placed in a pool under horizon planned for that instant by a plan of its cycle, and was nobody preempted there?
with ruled as (
    select d.seq, d.position, d.type, d.workload, d.run, r.pool, r.beneficiary
    from fact.decision as d
    join (select workload, run, pool, beneficiary from mart.run_at($seq, $as_of_ms)) as r using (workload, run)
    join dim.policy as p on p.pool = r.pool and p.seq <= d.seq and coalesce(p.valid_to_seq > d.seq, true)
    where d.type in ('run.placed', 'run.preempted') and d.seq <= $seq and p.policy = 'horizon'
)
select seq, position, type, workload, run, pool from ruled where type = 'run.preempted'
union all
-- who was held for GPUs before the pool was planned starts on those
select u.seq, u.position, u.type, u.workload, u.run, u.pool
from ruled as u join fact.workload as w on w.workload = u.workload
where u.type = 'run.placed' and w.service = '' and not u.beneficiary
    and not exists (select 1 from fact.plan_job as j where j.seq = u.seq and j.pool = u.pool and j.workload = u.workload and j.start = 0)
