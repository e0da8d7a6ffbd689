-- Is every preemption right by its own numbers, under the rule of the policy it names, or was the victim on idle cycles,
-- or shown to do no work and demoted for it?
-- fair: 2 x running - size > 2 x allowance of the victim's budget; priority: the victim's is lower; drf: the taker's line with
-- the new workload over its weight stays below the victim's line over its own
select c.seq, c.position, c.victim, c.victim_run, c.policy, c.victim_running_milli, c.victim_gpus_milli, c.victim_allowance_milli, c.numbers
from fact.certificate as c
left join fact.decision as p on p.type = 'run.placed' and p.workload = c.victim and p.run = c.victim_run
where c.seq <= $seq and (
    (coalesce(p.reason, '') <> 'idle_cycles' and not exists (
        select 1 from fact.decision as i
        where i.type = 'run.idle' and i.workload = c.victim and i.run = c.victim_run and i.seq <= c.seq
            and (i.body->>'$.since_ms')::bigint = (c.numbers->>'$.idle_since_ms')::bigint
    ) and not coalesce(case c.policy
        when 'fair' then 2 * c.victim_running_milli - c.victim_gpus_milli > 2 * c.victim_allowance_milli
        when 'priority' then (c.numbers->>'$.victim_priority')::bigint < (c.numbers->>'$.beneficiary_priority')::bigint
        when 'drf' then ((c.numbers->>'$.beneficiary_line_milli')::hugeint + c.beneficiary_gpus_milli) * (c.numbers->>'$.victim_weight_ppm')::bigint
            < (c.numbers->>'$.victim_line_milli')::hugeint * (c.numbers->>'$.beneficiary_weight_ppm')::bigint
    end, false))
    or c.victim_gpus_milli <> p.gpus_milli or c.ran_ms <> c.time_ms - p.time_ms or c.freed_milli <= 0
)
