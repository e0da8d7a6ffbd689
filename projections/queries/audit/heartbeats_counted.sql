-- Do the heartbeats in the five-minute rows add up to those the cycles counted?
select h.samples, c.heartbeats
from (select coalesce(sum(samples), 0)::bigint as samples from mart.heard_at($seq)) as h,
    (select coalesce(sum(heartbeats), 0)::bigint as heartbeats from fact.cycle where seq <= $seq) as c
where $seq = mart.readable_seq() and h.samples <> c.heartbeats
