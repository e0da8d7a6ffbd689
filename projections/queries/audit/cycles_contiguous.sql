-- Do cycles follow each other without gap in number, in input and in time, with growing place in DECISIONS?
select seq, cycle, first_seq, before_seq
from (
    select *, lag(seq, 1, 0) over w as before_seq, lag(cycle, 1, 0) over w as before_cycle, lag(time_ms, 1, 0) over w as before_ms,
        lag(decision_seq, 1, 0) over w as before_decision_seq
    from fact.cycle where seq <= $seq window w as (order by seq)
)
where cycle <> before_cycle + 1 or first_seq <> before_seq + 1 or time_ms < before_ms or decision_seq <= before_decision_seq
