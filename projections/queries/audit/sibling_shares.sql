-- Do the shares of budgets side by side never exceed the whole, neither in the past nor as planned?
with said as (
    select * from dim.budget_version where seq <= $seq
),
instant as (
    select pool, parent, from_ms as at_ms from said
    union
    select pool, parent, until_ms from said where until_ms > 0
),
line as (
    select i.pool, i.parent, i.at_ms, s.share_ppm, s.closed
    from instant as i join said as s
        on s.pool = i.pool and s.parent = i.parent and s.from_ms <= i.at_ms and (s.until_ms = 0 or i.at_ms < s.until_ms)
    qualify row_number() over (partition by i.pool, i.parent, i.at_ms, s.budget order by s.seq desc) = 1
)
select pool, parent, at_ms, sum(share_ppm)::bigint as sum_ppm
from line
where not closed
group by all having sum(share_ppm) > 1000000
