"""Integer units, their bounds, the rule of time, and the two divisions the product allows itself.

Everything that is ordered, stored or charged is an integer:

=============== ======================================================================
``*_ms``        milliseconds since 1970 for instants, milliseconds for durations
``*_milli``     thousandths of a GPU; one GPU is 1,000
``*_gpu_us``    GPU-microseconds = milli-GPU x millisecond, an exact product
``*_ppm``       parts per million of the parent budget
=============== ======================================================================

This module is a pure function of its arguments. It must never see a float: a share shown as a percentage
is divided by the page that shows it.

Bounds are chosen so that no product formed in the core can leave int64 (9.2e18): a pool has at most ``MAX_POOL_MILLI``
(16,384 GPUs, refused above), one step of time is at most ``MAX_ELAPSED_MS`` (2 years), so a product is at most 1.04e18, and
an account of a full pool overflows after 17.8 years. Accrual multiplies by an elapsed time, never by an instant.
"""

from __future__ import annotations

from collections.abc import Sequence

MILLI = 1_000
PPM = 1_000_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 86_400_000
GPU_US_PER_GPU_HOUR = MILLI * MS_PER_HOUR

MAX_NODE_GPUS = 72
MAX_LEVELS = 3  # of topology above the node
MAX_PLACES = 1 << 16  # of nodes in a pool's topology order, gaps included
MAX_POOL_MILLI = 16_384 * MILLI
MAX_TIME_MS = 1 << 42  # the year 2109
MAX_ELAPSED_MS = 2 * 366 * MS_PER_DAY
NEVER_MS = 1 << 60  # an instant after all others: of what states no end, or is not asked for
UNKNOWN_RUNTIME_MS = MS_PER_DAY  # after its start a run that states nothing is taken to end
BUCKET_MS = 60_000  # of the plan that conservative backfill makes
MAX_DURATION_MS = 366 * MS_PER_DAY
MAX_GRANT_GPU_US = 1 << 58
MAX_BALANCE_GPU_US = 1 << 61  # of all grants of one line together
MAX_AMOUNT_GPU_US = 1 << 62
MAX_PRIORITY = 1_000_000
SERVICE_AHEAD = 2 * MAX_PRIORITY + 1  # added to the priority of services: before all else of their budget
MAX_SERVICE_REPLICAS = 4_096
PLAN_STEP_MS = 1_800_000  # between two instants of the plan, unless the pool says otherwise
DEMAND_STALE_MS = 900_000  # without news of its traffic a service keeps what it has


def gpu_us(gpus_milli: int, elapsed_ms: int) -> int:
    """Return the GPU time of ``gpus_milli`` held for ``elapsed_ms``: the product's one money function.

    Python integers, so the product is exact whatever its size; raises ``ValueError`` when it is negative or could not be
    added to an account (a full pool held for nine years).
    """
    amount = gpus_milli * elapsed_ms
    if gpus_milli < 0 or elapsed_ms < 0 or amount > MAX_AMOUNT_GPU_US:
        raise ValueError(f"gpu_us: {gpus_milli} milli-GPU x {elapsed_ms} ms is outside the bounds of units.py")
    return amount


def first_time_ms(claimed_ms: int) -> int:
    """Return the time at which a log begins whose first record claims ``claimed_ms``."""
    return min(max(claimed_ms, 0), MAX_TIME_MS)


def next_time_ms(time_ms: int, claimed_ms: int, *, stated: bool) -> int | None:
    """Return the log's time after a record that claims ``claimed_ms``, None when a stated time cannot follow ``time_ms``.

    Time never runs backwards, and the server's own clock is followed in steps of at most ``MAX_ELAPSED_MS``.
    """
    limit_ms = min(time_ms + MAX_ELAPSED_MS, MAX_TIME_MS)
    if stated and not 0 <= claimed_ms <= limit_ms:
        return None
    return max(time_ms, min(claimed_ms, limit_ms))


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Split ``total`` into parts proportional to ``weights`` that sum to ``total`` exactly.

    Largest remainder (Hamilton's method); ties go to the earlier position. Weights are >= 0 and not all zero
    unless ``total`` is zero. Works on Python integers, so products cannot overflow.
    """
    whole = sum(weights)
    if whole == 0:
        if total:
            raise ValueError(f"cannot apportion {total} over weights that sum to 0")
        return [0 for _ in weights]
    parts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    missing = total - sum(parts)
    order = sorted(range(len(weights)), key=lambda position: (-remainders[position], position))
    for position in order[:missing]:
        parts[position] += 1
    return parts
