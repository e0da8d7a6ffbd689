-- How much is in this projection?
select
    (select count(*) from fact.cycle where seq <= $seq) as cycles,
    (select coalesce(sum(records), 0)::bigint from fact.cycle where seq <= $seq) as events,
    (select coalesce(sum(heartbeats), 0)::bigint from fact.cycle where seq <= $seq) as heartbeats,
    (select coalesce(sum(stale_heartbeats), 0)::bigint from fact.cycle where seq <= $seq) as stale_heartbeats,
    (select count(*) from fact.decision where seq <= $seq) as decisions,
    (select count(*) from fact.workload where greatest(seq, admitted_seq) <= $seq) as submitted,
    (select count(distinct workload) from mart.run_at($seq, $as_of_ms)) as started,
    (select count(*) from fact.workload_end where seq <= $seq) as finished,
    (select count(*) from fact.workload_end where seq <= $seq and outcome = 'succeeded') as succeeded,
    (select count(*) from mart.run_at($seq, $as_of_ms)) as runs,
    (select count(*) from fact.decision where seq <= $seq and type = 'run.preempted') as preemptions,
    (select count(distinct seq) from fact.decision where seq <= $seq and type = 'run.preempted') as preempting_cycles,
    (select count(*) from fact.rejection where seq <= $seq) as rejections,
    (select coalesce(sum(lost_gpu_us), 0)::bigint from mart.run_at($seq, $as_of_ms)) as lost_gpu_us,
    (select coalesce(sum(amount_gpu_us), 0)::bigint from fact.ledger where seq <= $seq) as ledger_sum_gpu_us,
    (select count(*) from fact.ledger where seq <= $seq) as ledger_lines,
    (select min(time_ms) from fact.cycle where seq <= $seq) as first_ms
