-- Has each service as many replicas as it is to have: those admitted, less those over, retired or withdrawn, but for some that stop?
with size as (
    select s.workload, coalesce(arg_max(r.replicas, (r.seq, r.position)), 0) as replicas
    from fact.service as s left join fact.resize as r on r.workload = s.workload and r.seq <= $seq
    where s.admitted_seq <= $seq and s.workload not in (select workload from fact.workload_end where seq <= $seq)
    group by s.workload
),
leaving as (
    select distinct workload from fact.decision where type = 'run.retired' and seq <= $seq
    union
    select entity from raw.event_log where type = 'workload.cancelled' and not refused and seq <= $seq
),
state as (
    select w.service as workload, s.state, l.workload is not null as leaves
    from mart.state_at($seq) as s join fact.workload as w using (workload) left join leaving as l using (workload) where w.service <> ''
),
live as (
    select workload, count(*) filter (not leaves) as staying, count(*) filter (not leaves and state = 'stopping') as stopping
    from state group by workload
)
select z.workload, z.replicas, coalesce(v.staying, 0) as staying, coalesce(v.stopping, 0) as stopping
from size as z left join live as v using (workload) left join leaving as l using (workload)
where l.workload is null and not coalesce(v.staying, 0) between z.replicas and z.replicas + coalesce(v.stopping, 0)
