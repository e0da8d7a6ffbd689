-- Is no record of the log there twice?
select seq, count(*) as rows from raw.event_log where seq <= $seq group by seq having count(*) > 1
