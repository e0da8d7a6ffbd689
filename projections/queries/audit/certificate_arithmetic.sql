-- Is every preemption right by its own numbers: 2 x running - size > 2 x allowance of the victim's budget, or idle cycles?
select c.seq, c.position, c.victim, c.victim_run, c.victim_running_milli, c.victim_gpus_milli, c.victim_allowance_milli
from fact.certificate as c
left join fact.decision as p on p.type = 'run.placed' and p.workload = c.victim and p.run = c.victim_run
where c.seq <= $seq and (
    (2 * c.victim_running_milli - c.victim_gpus_milli <= 2 * c.victim_allowance_milli and coalesce(p.reason, '') <> 'idle_cycles')
    or c.victim_gpus_milli <> p.gpus_milli or c.ran_ms <> c.time_ms - p.time_ms or c.freed_milli <= 0
)
