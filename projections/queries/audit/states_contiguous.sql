-- Is a workload in one state at a time, from its admission to its end without a gap?
with spell as (
    select workload, state, from_seq, to_seq from fact.workload_state_closed where from_seq <= $seq
    union all
    select workload, state, from_seq, null from fact.workload_state_open where from_seq <= $seq
),
ordered as (
    select *, lead(from_seq) over w as next_seq, row_number() over w as place
    from spell window w as (partition by workload order by from_seq, coalesce(to_seq, 9223372036854775807))
)
select o.workload, o.state, o.from_seq, o.to_seq, o.next_seq
from ordered as o
left join (select workload, max(seq) as seq from fact.workload_end where seq <= $seq group by workload) as e using (workload)
left join (select workload, min(admitted_seq) as seq from fact.workload group by workload) as w using (workload)
where (o.next_seq is not null and o.to_seq is distinct from o.next_seq)
    or (o.next_seq is null and o.to_seq is distinct from e.seq and (o.to_seq is null or o.to_seq <= $seq))
    or (o.place = 1 and o.from_seq <> w.seq)
