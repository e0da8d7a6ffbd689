-- Is each closed run charged in the ledger for exactly the time its allocations say, funded and not?
select coalesce(a.workload, l.workload) as workload, coalesce(a.run, l.run) as run, a.funded_gpu_us, l.used_gpu_us, a.unfunded_gpu_us,
    l.unfunded_used_gpu_us
from (
    select a.workload, a.run, sum(case when a.payer = 'budget' then a.gpu_us else 0 end)::bigint as funded_gpu_us,
        sum(case when a.payer = 'budget' then 0 else a.gpu_us end)::bigint as unfunded_gpu_us
    from fact.alloc_closed as a semi join (select workload, run from fact.run_closed where closed_seq <= $seq) as r
        on r.workload = a.workload and r.run = a.run
    group by a.workload, a.run
) as a
full join (
    select l.workload, l.run, coalesce(sum(amount_gpu_us) filter (kind = 'charge' and account = 'used'), 0)::bigint as used_gpu_us,
        coalesce(sum(amount_gpu_us) filter (kind = 'unfunded' and account = 'unfunded'), 0)::bigint as unfunded_used_gpu_us
    from fact.ledger as l semi join (select workload, run from fact.run_closed where closed_seq <= $seq) as r
        on r.workload = l.workload and r.run = l.run
    group by l.workload, l.run
) as l on l.workload = a.workload and l.run = a.run
where coalesce(a.funded_gpu_us, 0) <> coalesce(l.used_gpu_us, 0) or coalesce(a.unfunded_gpu_us, 0) <> coalesce(l.unfunded_used_gpu_us, 0)
