-- Which attempts did a workload have, on which GPUs, how did each end and what did it cost?
-- workload varchar
select r.run, r.pool, r.budget, r.gpus_milli, r.placed_ms, nullif(r.started_ms, 0) as started_ms, nullif(r.stop_ms, 0) as stop_ms,
    r.end_ms, r.is_open, r.outcome, r.exit_code, r.requeued, r.placed_payer, r.placed_why, r.protected_until_ms,
    case when r.is_open then mart.standing(a.payer, r.protected_until_ms, $as_of_ms) end as standing, a.funded_gpu_us, a.unfunded_gpu_us, r.refunded_gpu_us + r.unfunded_refunded_gpu_us as refunded_gpu_us,
    r.lost_gpu_us, r.useful_gpu_us, a.pieces, r.placed_seq, r.closed_seq
from mart.run_at($seq, $as_of_ms) as r
left join (
    select workload, run, any_value(payer) filter (is_open) as payer,
        sum(case when payer = 'budget' then gpu_us else 0 end)::bigint as funded_gpu_us,
        sum(case when payer = 'budget' then 0 else gpu_us end)::bigint as unfunded_gpu_us,
        -- a change of payer opens new rows for the same pieces: count those of the first payer
        list({'piece': piece, 'node': node, 'gpus': gpus, 'milli_each': milli_each} order by piece)
            filter (open_seq = first_seq) as pieces
    from (
        select *, min(open_seq) over (partition by workload, run) as first_seq
        from mart.alloc_at($seq, $as_of_ms) where workload = mart.workload_named($workload, $seq)
    )
    group by workload, run
) as a using (workload, run)
where r.workload = mart.workload_named($workload, $seq)
order by r.run
