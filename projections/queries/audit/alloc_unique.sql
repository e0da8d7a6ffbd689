-- Is every allocation there once, open or closed?
select alloc_id, count(*) as rows from (
    select alloc_id from fact.alloc_closed union all select alloc_id from fact.alloc_open
) group by alloc_id having count(*) > 1
