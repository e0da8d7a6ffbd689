-- What was the most traffic of each live service in each step of time that is over?
-- step_ms bigint 1800000
-- since_ms bigint 0
select d.workload, (d.time_ms // $step_ms * $step_ms)::bigint as from_ms, max(d.traffic_milli) as traffic_milli, count(*) as observations
from fact.demand as d join fact.service as s using (workload)
where d.seq <= $seq and s.admitted_seq <= $seq and d.time_ms >= $since_ms and d.time_ms < $as_of_ms // $step_ms * $step_ms
    and d.workload not in (select workload from fact.workload_end where seq <= $seq)
group by all
order by d.workload, from_ms
