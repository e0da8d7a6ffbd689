-- Is each service as large as its traffic asks, within its minimum, its maximum and its swap cap, and is every size said?
with said as (
    select r.*, s.min_replicas, s.max_replicas, s.swap_replicas, s.gpus_milli_per_traffic,
        lag(r.replicas) over (partition by r.workload order by r.seq, r.position) as was,
        least((r.traffic_milli::hugeint * s.gpus_milli_per_traffic + 1000::hugeint * s.gpus_milli - 1) // (1000::hugeint * s.gpus_milli), 4096)
            as asks
    from fact.resize as r join fact.service as s using (workload) where r.seq <= $seq and s.admitted_seq <= r.seq
)
select seq, position, workload, before, replicas, why, bound, need, asks
from said
where before <> coalesce(was, 0) or replicas = before
    or (why in ('traffic', 'forecast') and need is distinct from asks) or (why = 'held' and need < asks)
    or (bound = '' and why <> 'least' and replicas <> need)
    or (bound = 'most' and (replicas <> max_replicas or need < replicas))
    or (bound = 'least' and (replicas <> min_replicas or need > replicas))
    or (bound <> 'swap' and (replicas < min_replicas or replicas > max_replicas))
    or (bound = 'swap' and swap_replicas < 0)
