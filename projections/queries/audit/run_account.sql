-- Does each run's final account equal the sum of its allocations: charged, unfunded, size, beginning and end?
select r.workload, r.run, r.charged_gpu_us, a.funded_gpu_us, r.unfunded_gpu_us, a.unfunded_gpu_us as intervals_unfunded_gpu_us
from fact.run_closed as r
left join (
    select workload, run, sum(case when payer = 'budget' then gpu_us else 0 end)::bigint as funded_gpu_us,
        sum(case when payer = 'budget' then 0 else gpu_us end)::bigint as unfunded_gpu_us, min(start_ms) as start_ms, max(end_ms) as end_ms,
        (sum(gpus_milli) filter (end_reason <> 'funding_changed'))::bigint as gpus_milli
    from fact.alloc_closed group by workload, run
) as a using (workload, run)
where r.closed_seq <= $seq and (
    a.workload is null or r.charged_gpu_us <> a.funded_gpu_us or r.unfunded_gpu_us <> a.unfunded_gpu_us
    or r.placed_ms <> a.start_ms or r.end_ms <> a.end_ms or r.gpus_milli <> a.gpus_milli
)
