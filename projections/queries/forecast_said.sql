-- What was last forecast of the traffic of each live service?
with newest as (
    select target, max(seq) as seq from fact.forecast where of = 'traffic' and seq <= $seq group by target
)
select f.target as workload, f.model, f.time_ms, f.quantile_ppm, f.from_ms, f.until_ms, f.value as traffic_milli
from fact.forecast as f join newest using (target, seq) join fact.service as s on s.workload = f.target
where s.admitted_seq <= $seq and f.target not in (select workload from fact.workload_end where seq <= $seq)
order by f.target, f.quantile_ppm, f.from_ms
