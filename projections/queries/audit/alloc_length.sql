-- Is each allocation charged once and for its length, and does it end after it began?
select alloc_id, workload, run, gpus_milli, start_ms, end_ms, gpu_us
from fact.alloc_closed
where close_seq <= $seq and (
    end_ms < start_ms or close_seq < open_seq or gpu_us <> gpus_milli * (end_ms - start_ms) or gpus_milli <> len(gpus) * milli_each
)
