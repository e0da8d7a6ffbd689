-- Is every five minutes of a node there once, within its size, and does it speak for no more time than it can?
select node, pool, gpus, bucket_ms, 1 as rows, covered_gpu_us, busy_gpu_us
from mart.heard_at($seq)
where covered_gpu_us > gpus * 1000 * (300000 + 180000) or busy_gpu_us > covered_gpu_us or samples <= 0
union all
-- found by a hash, which is cheaper to group by, and then looked at
select node, pool, gpus, bucket_ms, count(*), sum(covered_gpu_us)::bigint, sum(busy_gpu_us)::bigint
from mart.heard_at($seq)
where hash(node, bucket_ms) in (select hash(node, bucket_ms) from mart.heard_at($seq) group by 1 having count(*) > 1)
group by node, pool, gpus, bucket_ms
having count(*) > 1
