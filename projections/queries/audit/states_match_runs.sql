-- Has every workload that is not waiting a run in progress, and every run in progress a workload in its state?
select coalesce(s.workload, r.workload) as workload, s.state, s.run as state_run, r.run, r.placed_seq
from (select * from mart.state_at($seq) where state <> 'pending') as s
full join (select workload, run, placed_seq from mart.run_at($seq, $as_of_ms) where is_open) as r on r.workload = s.workload and r.run = s.run
where s.workload is null or r.workload is null
union all
select d.workload, null, null, d.run, d.seq
from fact.decision as d
where d.type = 'run.placed' and d.seq <= $seq and not exists (
    select 1 from (from fact.workload_state_closed select workload, run, from_seq, state union all
        from fact.workload_state_open select workload, run, from_seq, state) as s
    where s.workload = d.workload and s.run = d.run and s.from_seq = d.seq and s.state = 'placed'
)
