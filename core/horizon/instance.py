"""What is to be planned: GPUs, steps, jobs, running work, services; as integer arrays, and refused when it cannot be meant.

An instance is a value: nobody changes it. Steps are counted from now (step 0). A job of ``gpus`` (a power of two) takes an aligned
block for ``duration`` steps without a break; it may start from ``earliest`` to ``latest``, and if ``latest`` is before the end of
the horizon that is a promise (the wait bound), not a wish. A service holds between ``least`` and ``most`` GPUs at each step and
changes by at most ``cap``; what it lacks of ``demand`` is unmet. ``protected[b, t]`` GPUs are kept for budget ``b``: where a job
takes its budget above that, all that is kept for others must still be free (services may use it).

``check`` is applied before planning. It must never repair: what is out of reach for a service is brought into reach by
``reachable``, which the caller asks for, and which says how many steps it changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import curves
from apportion.core.units import MAX_PRIORITY

I64 = NDArray[np.int64]

ONE = 1 << 16  # of the decay table
MAX_GPUS = 1_024
MAX_STEPS = 336
MAX_JOBS = 4_096
MAX_DURATION = 1 << 20  # steps
MAX_AGE = 1 << 20
MAX_SERVICES = 64
MAX_BUDGETS = 4_096
MAX_PENALTY = 1_000
MAX_VALUE = 1 << 59  # of a whole plan, so that no sum or difference of two leaves int64
ANYWHERE = -1  # of a service that has no GPUs to follow on from
NONE = -1  # no budget; no place


class BadInstance(ValueError):
    """An instance that cannot be meant: says which number, and what to do."""


NOWHERE: I64 = np.zeros(0, dtype=np.int64)


class Jobs(NamedTuple):
    """One row per job that waits."""

    id: I64  # unique; decides ties
    gpus: I64
    duration: I64
    priority: I64
    earliest: I64
    latest: I64  # a promise when before the end of the horizon
    age: I64  # steps waited so far: where in the decay table it is now
    budget: I64  # row of ``protected``, or NONE


class Pinned(NamedTuple):
    """One row per run that is under way, and stays."""

    first: I64  # GPU
    gpus: I64
    left: I64  # steps
    budget: I64


class Services(NamedTuple):
    """One row per service; the first three by step."""

    least: I64
    demand: I64
    most: I64
    cap: I64
    initial: I64  # GPUs held before step 0, or ANYWHERE
    priority: I64  # of a GPU-step served
    penalty: I64  # of a GPU-step not served, in priorities


class Instance(NamedTuple):
    """All of it."""

    gpus: int
    steps: int
    jobs: Jobs
    pinned: Pinned
    services: Services
    decay: I64  # in ONE; the last entry holds for ever
    protected: I64  # [budget, step]
    whole: bool = False  # a job that would not end within the horizon is not planned in it
    barred: I64 = NOWHERE  # 1 per GPU on which no job may be at step 0, though it is counted as free: a service has it; or empty


def jobs(rows: list[tuple[int, ...]]) -> Jobs:
    """Return jobs of rows in the order of the columns; budget may be left out."""
    table = np.array([row if len(row) == 8 else (*row, NONE) for row in rows], dtype=np.int64).reshape(len(rows), 8)
    return Jobs(*np.ascontiguousarray(table.T))


def pinned(rows: list[tuple[int, ...]]) -> Pinned:
    """Return running work of rows in the order of the columns; budget may be left out."""
    table = np.array([row if len(row) == 4 else (*row, NONE) for row in rows], dtype=np.int64).reshape(len(rows), 4)
    return Pinned(*np.ascontiguousarray(table.T))


def no_services(steps: int) -> Services:
    """Return none."""
    empty, curve = np.zeros(0, dtype=np.int64), np.zeros((0, steps), dtype=np.int64)
    return Services(curve, curve, curve, empty, empty, empty, empty)


def unprotected(steps: int) -> I64:
    """Return the table of a pool in which nothing is kept for a budget."""
    return np.zeros((0, steps), dtype=np.int64)


def decaying(length: int, keep: int) -> I64:
    """Return a table of which each entry is ``keep`` / ONE of the one before, rounded down."""
    table, value = np.zeros(length, dtype=np.int64), ONE
    for step in range(length):
        table[step] = value
        value = value * keep // ONE
    return table


def lowest(services: Services, a: int) -> I64:
    """Return the least that a service can hold at each step."""
    line = np.empty(services.least.shape[1], dtype=np.int64)
    curves.narrowest(services.least[a], int(services.cap[a]), int(services.initial[a]), line)
    return line


def highest(services: Services, a: int) -> I64:
    """Return the most that a service can hold at each step."""
    line = np.empty(services.most.shape[1], dtype=np.int64)
    curves.widest(services.most[a], int(services.cap[a]), int(services.initial[a]), line)
    return line


def reachable(services: Services, gpus: I64) -> tuple[Services, int]:
    """Return services whose ranges can be kept, beside each other on ``gpus[t]``, and how many (service, step) that changed.

    A service that holds more than ``most`` allows comes down by its cap; one that holds less than ``least`` comes up by its cap.
    What all must hold together gives way, the last service first, where there are not enough GPUs; but what the cap forces a
    service to hold it keeps, so GPUs that work has taken from under it remain an error.
    """
    least, most = services.least.copy(), services.most.copy()
    left = gpus.copy()
    for a in range(len(services.cap)):
        cap, initial = int(services.cap[a]), int(services.initial[a])
        forced = np.empty_like(least[a])
        curves.narrowest(np.zeros_like(least[a]), cap, initial, forced)
        most[a] = np.maximum(most[a], forced)
        up = np.empty_like(most[a])
        curves.widest(most[a], cap, initial, up)
        least[a] = np.minimum(least[a], np.minimum(up, np.maximum(0, left)))
        low = np.empty_like(least[a])
        curves.narrowest(least[a], cap, initial, low)
        if (low > np.maximum(left, forced)).any():  # ramps would need more than there is: come down to what is forced
            least[a], low = np.minimum(least[a], forced), forced
        left -= low
    changed = int((least != services.least).sum() + (most != services.most).sum())
    return services._replace(least=least, most=most), changed


def check(instance: Instance) -> None:
    """Refuse with ``BadInstance`` what cannot be planned."""
    _between("gpus", instance.gpus, 1, MAX_GPUS)
    _between("steps", instance.steps, 1, MAX_STEPS)
    _check_jobs(instance)
    _check_services(instance)
    _check_decay_and_value(instance)
    _check_room(instance)


def _check_jobs(instance: Instance) -> None:
    work, gpus = instance.jobs, instance.gpus
    budgets = len(instance.protected)
    _between("jobs", len(work.id), 0, MAX_JOBS)
    _between("budgets", budgets, 0, MAX_BUDGETS)
    _same_length("jobs", work, len(work.id))
    _range("jobs.gpus", work.gpus, 1, gpus)
    odd = np.flatnonzero(work.gpus & (work.gpus - 1))
    if len(odd):
        asked = int(work.gpus[odd[0]])
        raise BadInstance(
            f"job {int(work.id[odd[0]])} asks for {asked} GPUs: a block is a power of two; ask for {1 << asked.bit_length()}, "
            "or refuse it"
        )
    _range("jobs.duration", work.duration, 1, MAX_DURATION)
    _range("jobs.priority", work.priority, 0, MAX_PRIORITY)
    _range("jobs.earliest", work.earliest, 0, MAX_DURATION)
    _range("jobs.latest", work.latest, 0, 1 << 40)
    _range("jobs.age", work.age, 0, MAX_AGE)
    _range("jobs.budget", work.budget, NONE, budgets - 1)
    if len(np.unique(work.id)) != len(work.id):
        raise BadInstance("two jobs have the same id: ties would not be decided; give each its own")


def _check_services(instance: Instance) -> None:
    services, steps = instance.services, instance.steps
    count = len(services.cap)
    _between("services", count, 0, MAX_SERVICES)
    _same_length("services", services, count)
    for name in ("least", "demand", "most"):
        table = getattr(services, name)
        if table.shape != (count, steps):
            raise BadInstance(f"services.{name} has shape {table.shape}, expected {(count, steps)}: each service and step")
        _range(f"services.{name}", table, 0, MAX_GPUS)
    _range("services.cap", services.cap, 0, MAX_GPUS)
    _range("services.initial", services.initial, ANYWHERE, instance.gpus)
    _range("services.priority", services.priority, 0, MAX_PRIORITY)
    _range("services.penalty", services.penalty, 0, MAX_PENALTY)
    for a in range(count):
        low, high = lowest(services, a), highest(services, a)
        beyond = np.flatnonzero(low > high)
        if len(beyond):
            t = int(beyond[0])
            raise BadInstance(
                f"service {a} must hold {int(low[t])} GPUs at step {t} and may hold {int(high[t])}: its range cannot be kept from "
                f"{int(services.initial[a])} GPUs with a cap of {int(services.cap[a])}; widen it (reachable), or raise the cap"
            )


def _check_decay_and_value(instance: Instance) -> None:
    if instance.decay.ndim != 1 or len(instance.decay) < 1:
        raise BadInstance("the decay table is empty: give at least one entry, such as 65536 for no decay")
    _range("decay", instance.decay, 0, ONE)
    work, services = instance.jobs, instance.services
    value = sum(
        int(p) * int(g) * min(int(d), instance.steps) * ONE for p, g, d in zip(work.priority, work.gpus, work.duration, strict=True)
    ) + sum(
        int(p) * (1 + int(f)) * int(d) * ONE
        for p, f, d in zip(services.priority, services.penalty, services.demand.sum(axis=1), strict=True)
    )
    if value > MAX_VALUE:
        raise BadInstance(f"all together would be worth {value}, at most {MAX_VALUE} can be counted; scale the priorities down")


def _check_room(instance: Instance) -> None:
    """Refuse running work that overlaps, and services that must hold more than is left."""
    if len(instance.barred) not in (0, instance.gpus):
        raise BadInstance(f"barred has {len(instance.barred)} rows, expected none or {instance.gpus}")
    _range("barred", instance.barred, 0, 1)
    work, services, steps = instance.pinned, instance.services, instance.steps
    _same_length("pinned", work, len(work.first))
    _range("pinned.first", work.first, 0, instance.gpus - 1)
    _range("pinned.gpus", work.gpus, 1, instance.gpus)
    _range("pinned.left", work.left, 1, MAX_DURATION)
    _range("pinned.budget", work.budget, NONE, len(instance.protected) - 1)
    held = np.zeros(instance.gpus, dtype=np.int64)
    left = np.full(steps, instance.gpus, dtype=np.int64)
    for k in range(len(work.first)):
        first, end = int(work.first[k]), int(work.first[k] + work.gpus[k])
        if end > instance.gpus or held[first:end].any():
            raise BadInstance(f"pinned work {k} is on GPUs {first} to {end - 1}, of which some are not there or taken by another")
        held[first:end] = 1
        left[: int(work.left[k])] -= work.gpus[k]
    must = sum((lowest(services, a) for a in range(len(services.cap))), np.zeros(steps, dtype=np.int64))
    beyond = np.flatnonzero(must > left)
    if len(beyond):
        t = int(beyond[0])
        raise BadInstance(
            f"services must hold {int(must[t])} GPUs at step {t}, and running work leaves {int(left[t])}; lower their least"
        )
    if instance.protected.shape != (len(instance.protected), steps):
        raise BadInstance(f"protected has shape {instance.protected.shape}, expected (budgets, {steps})")
    _range("protected", instance.protected, 0, instance.gpus)


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInstance(f"{name} is {value}, must be {low} to {high}")


def _range(name: str, values: I64, low: int, high: int) -> None:
    if values.dtype != np.int64:
        raise BadInstance(f"{name} is of {values.dtype}, must be int64")
    outside = np.argwhere((values < low) | (values > high))
    if len(outside):
        place = tuple(int(number) for number in outside[0])
        raise BadInstance(f"{name}{list(place)} is {int(values[place])}, must be {low} to {high}")


def _same_length(name: str, table: NamedTuple, rows: int) -> None:
    for field, column in zip(table._fields, table, strict=True):
        if len(column) != rows:
            raise BadInstance(f"{name}.{field} has {len(column)} rows, expected {rows}")
