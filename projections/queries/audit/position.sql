-- Do commits follow each other without gap, do all tables stand at the last cycle, and is only what is later in the journal?
select first_seq, last_seq, before_seq, 'gap' as what
from (select *, lag(last_seq, 1, 0) over (order by last_seq) as before_seq from meta.commit_log)
where first_seq <> before_seq + 1 or records <> last_seq - first_seq + 1
union all
select null, p.seq, c.seq, 'position'
from (select coalesce(max(last_seq), 0) as seq, coalesce(max(decision_seq), 0) as decision_seq from meta.commit_log) as p,
    (select coalesce(max(seq), 0) as seq, coalesce(max(decision_seq), 0) as decision_seq from fact.cycle) as c
where p.seq <> c.seq or p.decision_seq <> c.decision_seq or p.seq <> mart.readable_seq()
union all
select null, last_seq, null, 'journal'
from meta.journal
where last_seq <= mart.readable_seq()
