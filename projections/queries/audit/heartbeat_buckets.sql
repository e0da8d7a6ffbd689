-- Is every five minutes of a node there once, within its size, and does it speak for no more time than it can?
select node, pool, gpus, bucket_ms, count(*) as rows, sum(covered_gpu_us)::bigint as covered_gpu_us, sum(busy_gpu_us)::bigint as busy_gpu_us
from mart.heard_at($seq)
group by node, pool, gpus, bucket_ms
having count(*) > 1 or sum(covered_gpu_us) > gpus * 1000 * (300000 + 180000) or sum(busy_gpu_us) > sum(covered_gpu_us) or sum(samples) <= 0
