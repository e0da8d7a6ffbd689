-- Did no refused input change anything: no version, grant, priority or workload comes from one?
select x.seq, x.what
from (
    select seq, 'budget version' as what from dim.budget_version union all
    select seq, 'member' from dim.member_version union all
    select seq, 'node' from dim.node_version union all
    select seq, 'policy' from dim.policy_version union all
    select seq, 'pool' from dim.pool union all
    select seq, 'priority' from fact.priority union all
    select seq, 'workload' from fact.workload union all
    select seq, 'money' from fact.ledger where kind in ('grant', 'withdrawal', 'transfer') union all
    select seq, 'grant schedule' from dim.grant_schedule union all
    select started_seq, 'run started' from fact.run_closed where started_seq > 0
) as x
join raw.event_log as e on e.seq = x.seq
where e.refused and x.seq <= $seq
