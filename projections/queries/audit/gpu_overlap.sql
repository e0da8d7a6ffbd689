-- Do runs never hold more than the whole of a GPU at any instant?
with edge as (
    select node, gpu, start_ms as at_ms, milli_each as milli
    from (select node, start_ms, milli_each, unnest(gpus) as gpu from mart.alloc_at($seq, $as_of_ms) where end_ms > start_ms)
    union all
    select node, gpu, end_ms, -milli_each
    from (select node, end_ms, milli_each, unnest(gpus) as gpu from mart.alloc_at($seq, $as_of_ms) where end_ms > start_ms)
),
level as (
    select node, gpu, at_ms, sum(sum(milli)) over (partition by node, gpu order by at_ms) as milli from edge group by node, gpu, at_ms
)
select node, gpu, at_ms, milli::bigint as milli from level where milli > 1000 or milli < 0
