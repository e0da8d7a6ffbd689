-- What was given back after a sequence of what had been charged by it, when, and who or what decided that?
-- known_seq bigint: what was known
-- budget varchar null: this budget and those below it
-- pool varchar null
with known as (
    select coalesce(max(seq), 0) as seq, coalesce(max(time_ms), 0) as ms from fact.cycle where seq <= least($known_seq, $seq)
),
late as (
    select r.*, k.ms as known_ms
    from fact.run_closed as r, known as k
    where r.closed_seq > k.seq and r.closed_seq <= $seq and r.placed_seq <= k.seq and r.refunded_gpu_us + r.unfunded_refunded_gpu_us > 0
        and ($budget is null or r.budget = $budget or starts_with(r.budget, $budget || '/')) and ($pool is null or r.pool = $pool)
),
after as (
    select l.workload, l.run,
        sum(case when a.payer = 'budget' then a.gpus_milli * greatest(0, a.end_ms - greatest(a.start_ms, l.known_ms)) else 0 end)::bigint as funded_gpu_us,
        sum(case when a.payer = 'budget' then 0 else a.gpus_milli * greatest(0, a.end_ms - greatest(a.start_ms, l.known_ms)) end)::bigint as unfunded_gpu_us
    from late as l join mart.alloc_at($seq, $as_of_ms) as a using (workload, run)
    group by all
)
-- the latest of its time goes back first: only what goes back beyond what it held after that moment
select l.workload, l.run, l.pool, l.budget, l.principal as "user", greatest(0, l.refunded_gpu_us - x.funded_gpu_us) as refunded_gpu_us,
    greatest(0, l.unfunded_refunded_gpu_us - x.unfunded_gpu_us) as unfunded_refunded_gpu_us, l.placed_ms, l.end_ms, l.known_ms,
    d.seq, d.position, d.time_ms as decided_ms, l.outcome, coalesce(e.seq, d.seq) as cause_seq, coalesce(e.type, 'run.closed') as cause,
    coalesce(e.principal, 'core') as author, coalesce(nullif(e.body->>'$.data.reason', ''), l.outcome) as reason
from late as l join after as x using (workload, run)
left join fact.decision as d on d.seq = l.closed_seq and d.type = 'run.closed' and d.workload = l.workload and d.run = l.run
left join raw.event_log as e on e.seq = nullif(d.event_seq, 0)
where l.refunded_gpu_us > x.funded_gpu_us or l.unfunded_refunded_gpu_us > x.unfunded_gpu_us
order by d.seq, d.position
