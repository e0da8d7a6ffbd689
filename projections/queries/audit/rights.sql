-- Did everybody whose workload was admitted have the right to charge that budget?
select w.workload, w.principal, w.budget, w.seq
from fact.workload as w
where greatest(w.seq, w.admitted_seq) <= $seq
    and not exists (select 1 from dim.operator as o where o.principal = w.principal and o.seq <= w.seq)
    and not exists (
        select 1 from dim.member as m
        where m.member = w.principal and m.held and m.seq <= w.seq and coalesce(m.valid_to_seq > w.seq, true)
            and (w.budget = m.budget or starts_with(w.budget, m.budget || '/'))
    )
