-- Does every allocation belong to a run that a decision placed, on those GPUs?
with piece as (
    select seq, workload, run, generate_subscripts(pieces, 1) - 1 as piece, unnest(pieces) as what
    from (select seq, workload, run, from_json(body->'$.pieces', '["JSON"]') as pieces from fact.decision where type = 'run.placed' and seq <= $seq)
)
select a.alloc_id, a.workload, a.run, a.piece, a.node, a.gpus
from mart.alloc_at($seq, $as_of_ms) as a
left join piece as p on p.workload = a.workload and p.run = a.run and p.piece = a.piece
where p.workload is null or p.seq > a.open_seq or p.what->>0 <> a.node or (p.what->2)::bigint <> a.milli_each
    or from_json(p.what->1, '["UTINYINT"]') <> a.gpus
