-- Which requests wait at the head of their queue although they would be funded, for how long, and why? The longest first.
-- budget varchar null: this budget and those below it
-- principal varchar null: submitted by
-- pool varchar null
-- row_limit bigint 10
with live as (
    select s.workload, s.pool, s.budget, s.state, s.from_seq, w.name, w.principal, w.gpus_milli, w.seq as submitted_seq
    from mart.state_at($seq) as s join fact.workload as w using (workload)
    where s.state = 'pending' and ($budget is null or s.budget = $budget or starts_with(s.budget, $budget || '/'))
        and ($principal is null or w.principal = $principal) and ($pool is null or s.pool = $pool)
),
reason as (
    select p.workload, arg_max(p.reason, (p.seq, p.position)) as reason, arg_max(p.numbers, (p.seq, p.position)) as numbers
    from fact.pending_reason as p join live as l on l.workload = p.workload and p.seq >= l.from_seq
    where p.seq <= $seq group by p.workload
)
select l.workload, l.name, l.pool, l.budget, l.principal, l.gpus_milli, l.state, r.reason, r.numbers, l.submitted_seq,
    (r.numbers->>'$.funded_since_ms')::bigint as funded_since_ms, $as_of_ms - (r.numbers->>'$.funded_since_ms')::bigint as funded_wait_ms
from live as l join reason as r using (workload)
where (r.numbers->>'$.funded_since_ms')::bigint > 0
order by funded_since_ms, submitted_seq
limit $row_limit
