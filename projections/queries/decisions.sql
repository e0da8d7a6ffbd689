-- What did a cycle decide, or the cycles up to now?
-- cycle bigint null: one cycle by its number
-- cycle_seq bigint null: one cycle by the sequence of its tick
-- type varchar null
-- workload varchar null
-- after_seq bigint 0
-- row_limit bigint 1000
select d.seq, d.position, d.time_ms, c.cycle, c.why as tick, d.type, d.workload, d.run, d.node, d.pool, d.budget, d.reason, d.payer,
    d.gpus_milli, nullif(d.event_seq, 0) as event_seq, d.body
from fact.decision as d join fact.cycle as c using (seq)
where d.seq <= $seq and d.seq > $after_seq
    and ($cycle is null or c.cycle = $cycle)
    and ($cycle_seq is null or c.seq = $cycle_seq)
    and ($type is null or d.type = $type)
    and ($workload is null or d.workload = mart.workload_named($workload, $seq))
order by d.seq, d.position
limit $row_limit
