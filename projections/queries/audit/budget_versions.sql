-- Is there one version of a budget at a time, below a parent that exists, in a pool that exists?
select pool, budget, seq, count(*) as rows, 'twice' as what from dim.budget_version where seq <= $seq group by all having count(*) > 1
union all
select b.pool, b.budget, b.seq, 1, 'no parent'
from dim.budget_version as b
where b.seq <= $seq and b.parent <> ''
    and not exists (select 1 from dim.budget_version as p where p.pool = b.pool and p.budget = b.parent and p.seq < b.seq)
union all
select b.pool, b.budget, b.seq, 1, 'no pool'
from dim.budget_version as b
where b.seq <= $seq and not exists (select 1 from dim.pool as p where p.pool = b.pool and p.seq < b.seq)
