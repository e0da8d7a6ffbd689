-- Who may charge or administer which budgets?
-- budget varchar null: roles that hold for it
-- principal varchar null
select budget, member, role, principal as granted_by, time_ms as since_ms, seq as since_seq, reason
from dim.member
where held and seq <= $seq and coalesce(valid_to_seq > $seq, true)
    and ($budget is null or $budget = budget or starts_with($budget, budget || '/'))
    and ($principal is null or member = $principal)
union all
select '', principal, 'operate', 'log.opened', null, seq, ''
from dim.operator where seq <= $seq and $budget is null and ($principal is null or principal = $principal)
order by 1, 2, 3
