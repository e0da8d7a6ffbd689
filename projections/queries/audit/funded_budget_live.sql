-- Does every funded allocation name a budget that was open when it began?
select a.alloc_id, a.workload, a.run, a.pool, a.budget, a.open_seq
from (
    -- the line of a user is as open as the budget it is below
    select * exclude (budget), regexp_replace(budget, '/~[^/]*$', '') as budget from mart.alloc_at($seq, $as_of_ms)
) as a
where a.payer = 'budget' and coalesce(
    (
        select arg_max(b.closed, b.seq) from dim.budget_version as b
        where b.pool = a.pool and b.budget = a.budget and b.seq <= a.open_seq
            and b.from_ms <= a.start_ms and (b.until_ms = 0 or a.start_ms < b.until_ms)
    ),
    -- no row covers the instant: closed unless it has begun before
    not exists (
        select 1 from dim.budget_version as b
        where b.pool = a.pool and b.budget = a.budget and b.seq <= a.open_seq and b.from_ms <= a.start_ms
    )
)
