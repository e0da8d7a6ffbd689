-- What runs on each budget line itself, by standing: protected, funded, or unfunded (may be preempted)?
-- pool varchar null
select pool, budget,
    sum(case when standing = 'protected' then gpus_milli else 0 end)::bigint as protected_milli,
    sum(case when standing = 'funded' then gpus_milli else 0 end)::bigint as funded_milli,
    sum(case when standing = 'unfunded' then gpus_milli else 0 end)::bigint as unfunded_milli,
    count(distinct (workload, run)) filter (standing = 'protected') as protected_count,
    count(distinct (workload, run)) filter (standing = 'funded') as funded_count,
    count(distinct (workload, run)) filter (standing = 'unfunded') as unfunded_count
from (select *, mart.standing(payer, protected_until_ms, $as_of_ms) as standing from mart.held_at($seq))
where $pool is null or pool = $pool
group by pool, budget
order by pool, budget
