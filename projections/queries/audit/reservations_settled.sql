-- Is nothing left in the reserved account of a closed run, and was what its account calls void given back?
select r.workload, r.run, coalesce(l.reserved_gpu_us, 0) as reserved_gpu_us, coalesce(l.void_gpu_us, 0) as void_gpu_us, r.voided_gpu_us
from fact.run_closed as r
left join (
    select workload, run, sum(amount_gpu_us)::bigint as reserved_gpu_us,
        coalesce(-sum(amount_gpu_us) filter (kind = 'void'), 0)::bigint as void_gpu_us
    from fact.ledger where account = 'reserved' group by workload, run
) as l using (workload, run)
where r.closed_seq <= $seq and (coalesce(l.reserved_gpu_us, 0) <> 0 or coalesce(l.void_gpu_us, 0) <> r.voided_gpu_us)
