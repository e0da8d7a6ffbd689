-- Do the shares of budgets side by side never exceed the whole?
select c.pool, c.parent, c.seq, sum(b.share_ppm)::bigint as sum_ppm
from (select distinct pool, parent, seq from dim.budget_version where seq <= $seq) as c
join dim.budget as b on b.pool = c.pool and b.parent = c.parent and b.seq <= c.seq and coalesce(b.valid_to_seq > c.seq, true) and not b.closed
group by all having sum(b.share_ppm) > 1000000
