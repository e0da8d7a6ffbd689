-- Which pools are there, by which rules?
select p.pool, p.gpu_class, v.* exclude (pool, principal, reason, seq, time_ms), v.time_ms as since_ms, v.principal as author, v.reason
from (select * from dim.pool where seq <= $seq) as p
join (select * from dim.policy_version where seq <= $seq qualify row_number() over (partition by pool order by seq desc) = 1) as v using (pool)
order by p.pool
