-- Is what a run kept, lost or got back never more than the GPU time that it held?
select workload, run, outcome, charged_gpu_us, unfunded_gpu_us, useful_gpu_us, lost_gpu_us, refunded_gpu_us, unfunded_refunded_gpu_us
from fact.run_closed
where closed_seq <= $seq and (
    useful_gpu_us > charged_gpu_us + unfunded_gpu_us or lost_gpu_us > charged_gpu_us + unfunded_gpu_us
    or refunded_gpu_us > charged_gpu_us or unfunded_refunded_gpu_us > unfunded_gpu_us
    or least(useful_gpu_us, lost_gpu_us, refunded_gpu_us, unfunded_refunded_gpu_us) < 0
)
