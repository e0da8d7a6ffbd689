-- Is no plan worth more than its bound, and does it leave no more demand than its services need and do not hold?
select p.plan, p.objective, p.bound, p.unmet_gpu_steps, coalesce(s.short, 0) as short
from fact.plan as p
left join (select plan, sum(greatest(needs - held, 0)) as short from fact.plan_service group by plan) as s using (plan)
where p.seq <= $seq and (p.objective > p.bound or p.unmet_gpu_steps <> coalesce(s.short, 0))
