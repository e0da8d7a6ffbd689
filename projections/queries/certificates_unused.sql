-- Which preemptions freed GPUs on which the beneficiary then did not start, and why?
-- pool varchar null
-- since_ms bigint 0
-- row_limit bigint 1000
select seq, position, time_ms, pool, victim, victim_run, victim_budget, beneficiary, beneficiary_budget, became, freed_milli, used_milli,
    unused_milli, lost_gpu_us, waited_gpu_us, freed_ms, beneficiary_placed_ms, over_seq
from mart.certificate_use_at($seq, $as_of_ms)
where unused_milli > 0 and time_ms >= $since_ms and ($pool is null or pool = $pool)
order by seq, position
limit $row_limit
