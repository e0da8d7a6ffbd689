-- What was said, in order (accepted heartbeats are not kept one by one)?
-- after_seq bigint 0
-- row_limit bigint 100
-- type varchar null: exact, or a beginning such as 'run.'
-- entity varchar null
-- principal varchar null
-- refused boolean null
select seq, time_ms, principal, type, entity, refused, event_id, version, claimed_ms, body_bytes, body
from raw.event_log
where seq > $after_seq and seq <= $seq
    and ($type is null or type = $type or (ends_with($type, '.') and starts_with(type, $type)))
    and ($entity is null or entity = $entity)
    and ($principal is null or principal = $principal)
    and ($refused is null or refused = $refused)
order by seq
limit $row_limit
