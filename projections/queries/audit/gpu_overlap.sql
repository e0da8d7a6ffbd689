-- Do runs never hold more than the whole of a GPU at any instant?
with place as (
    -- a number for each node: sorting by it costs a third of sorting by names
    select node, row_number() over (order by node) * 256 as place from (select distinct node from mart.alloc_at($seq, $as_of_ms))
),
held as (
    select place + unnest(gpus) as gpu, start_ms, end_ms, milli_each
    from mart.alloc_at($seq, $as_of_ms) join place using (node) where end_ms > start_ms
),
edge as (
    select gpu, start_ms as at_ms, milli_each as milli from held
    union all
    select gpu, end_ms, -milli_each from held
),
level as (
    -- at one instant what ends comes before what begins
    select gpu, at_ms, sum(milli) over (partition by gpu order by at_ms, milli rows unbounded preceding) as milli from edge
)
select node, gpu % 256 as gpu, at_ms, milli::bigint as milli
from level join place on place = gpu // 256 * 256
where milli > 1000 or milli < 0
