-- Does every workload that waits have a reason, given when it began to wait or later?
select s.workload, s.from_seq
from mart.state_at($seq) as s
where s.state = 'pending'
    and not exists (select 1 from fact.pending_reason as p where p.workload = s.workload and p.seq >= s.from_seq and p.seq <= $seq)
