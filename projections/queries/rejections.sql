-- What was refused, and why?
-- principal varchar null
-- reason varchar null
-- after_seq bigint 0
-- row_limit bigint 1000
select r.seq, r.time_ms, r.event_seq, r.reason, r.event_type, r.principal, r.entity, r.field, r.detail, r.numbers
from fact.rejection as r
where r.seq <= $seq and r.event_seq > $after_seq
    and ($principal is null or r.principal = $principal)
    and ($reason is null or r.reason = $reason)
order by r.event_seq
limit $row_limit
