-- Does no plan change what a service holds by more than its swap cap from one step to the next, nor hold more than it may?
select s.plan, s.workload, s.step, s.held, was, cap
from (
    select p.*, lag(p.held) over (partition by p.plan, p.workload order by p.step) as was,
        (if(a.swap_replicas < 0, a.max_replicas, a.swap_replicas) * a.gpus_milli + 999) // 1000 as cap,
        (a.max_replicas * a.gpus_milli + 999) // 1000 as most
    from fact.plan_service as p left join fact.service as a on a.workload = p.workload and a.admitted_seq <= p.seq
    where p.seq <= $seq
) as s
where cap is null or held < 0 or (step > 0 and (was is null or abs(held - was) > cap or held > most))
