-- Was time refunded only where hardware, its agent, a drain or a move lost a run's work, and never more than was paid?
select workload, run, outcome, charged_gpu_us, refunded_gpu_us, unfunded_gpu_us, unfunded_refunded_gpu_us
from fact.run_closed
where closed_seq <= $seq and (
    (refunded_gpu_us + unfunded_refunded_gpu_us > 0 and outcome not in ('node_lost', 'lost', 'drained', 'moved'))
    or refunded_gpu_us < 0 or unfunded_refunded_gpu_us < 0 or refunded_gpu_us > charged_gpu_us or unfunded_refunded_gpu_us > unfunded_gpu_us
)
