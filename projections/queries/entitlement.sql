-- What part of its pool's time was a budget entitled to, and since when is there one?
-- budget varchar
-- pool varchar
select entitled_ppm, share_ppm, closed,
    (select min(v.time_ms) from dim.budget_version as v where v.pool = $pool and v.budget = $budget and v.seq <= $seq) as began_ms
from mart.budget_at($seq, $as_of_ms) where pool = $pool and budget = $budget
