"""Instances to try: small ones for oracles, and ones with everything that may be in one."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from apportion.core.horizon import instance as inst

FAR = 1 << 30


@st.composite
def instances(draw: st.DrawFn, gpus: tuple[int, ...] = (4, 8, 24, 64, 100, 192), steps: int = 10) -> inst.Instance:
    """Any instance that can be planned."""
    pool = draw(st.sampled_from(gpus))
    whole = draw(st.booleans())
    budgets = draw(st.integers(0, 2))
    sizes = [1 << k for k in range(11) if 1 << k <= pool]
    count = draw(st.integers(0, 12))
    ids = draw(st.permutations(range(100, 100 + count)))
    jobs: list[tuple[int, ...]] = []
    for number in range(count):
        earliest = draw(st.integers(0, steps))
        latest = draw(st.sampled_from((FAR, FAR, FAR, earliest, earliest + 2, steps - 1)))
        jobs.append(
            (
                ids[number], draw(st.sampled_from(sizes)), draw(st.integers(1, steps + 3)), draw(st.integers(0, 9)), earliest,
                latest, draw(st.integers(0, 20)), draw(st.integers(-1, budgets - 1)),
            )
        )  # fmt: skip
    pinned: list[tuple[int, ...]] = []
    at = draw(st.integers(0, 3))
    while at < pool and draw(st.booleans()):
        size = min(pool - at, draw(st.integers(1, max(1, pool // 3))))
        pinned.append((at, size, draw(st.integers(1, steps + 2)), draw(st.integers(-1, budgets - 1))))
        at += size + draw(st.integers(0, 4))
    left = np.full(steps, pool, dtype=np.int64)
    for _first, size, remaining, _budget in pinned:
        left[:remaining] -= size
    services = draw(_services(pool, steps, int(left[0])))
    services, _changed = inst.reachable(services, left)
    protected = np.array([draw(_line(steps, pool // 2)) for _budget in range(budgets)], dtype=np.int64).reshape(budgets, steps)
    decay = inst.decaying(2 * steps, draw(st.sampled_from((inst.ONE, 60_000, 30_000))))
    return inst.Instance(pool, steps, inst.jobs(jobs), inst.pinned(pinned), services, decay, protected, whole)


@st.composite
def _services(draw: st.DrawFn, pool: int, steps: int, left: int) -> inst.Services:
    count = draw(st.integers(0, 2))
    demand = np.array([draw(_line(steps, pool // 2)) for _a in range(count)], dtype=np.int64).reshape(count, steps)
    least = demand * np.array([draw(st.sampled_from((0, 0, 1))) for _a in range(count)], dtype=np.int64).reshape(count, 1) // 2
    most = demand + np.array([draw(_line(steps, 4)) for _a in range(count)], dtype=np.int64).reshape(count, steps)
    column = [[draw(st.integers(low, high)) for _a in range(count)] for low, high in ((0, pool), (0, 9), (0, 10))]
    initial = [draw(st.integers(-1, max(0, left // max(1, count)))) for _a in range(count)]
    cap, priority, penalty = (np.array(values, dtype=np.int64) for values in column)
    return inst.Services(least, demand, most, cap, np.array(initial, dtype=np.int64), priority, penalty)


def _line(steps: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, max(0, most)), min_size=steps, max_size=steps)


def tiny() -> st.SearchStrategy[inst.Instance]:
    """Instances of which every plan can be tried: 4 GPUs, 4 steps, up to 3 jobs, at most one service of up to 2 GPUs."""
    return _tiny()


@st.composite
def _tiny(draw: st.DrawFn) -> inst.Instance:
    steps = 4
    jobs: list[tuple[int, ...]] = [
        (
            number, draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(0, 2)),
            FAR, 0,
        )
        for number in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    pinned: list[tuple[int, ...]] = [(draw(st.integers(0, 3)), 1, draw(st.integers(1, 4)))] if draw(st.booleans()) else []
    count = draw(st.integers(0, 1))
    demand = np.array([draw(_line(steps, 2)) for _a in range(count)], dtype=np.int64).reshape(count, steps)
    cap, priority, penalty = (
        np.array([draw(st.integers(low, high)) for _a in range(count)], dtype=np.int64) for low, high in ((0, 2), (1, 3), (0, 3))
    )
    initial = np.full(count, inst.ANYWHERE, dtype=np.int64)
    services = inst.Services(np.zeros_like(demand), demand, np.full_like(demand, 2), cap, initial, priority, penalty)
    decay = inst.decaying(2 * steps, draw(st.sampled_from((inst.ONE, 50_000))))
    whole = draw(st.booleans())
    return inst.Instance(4, steps, inst.jobs(jobs), inst.pinned(pinned), services, decay, inst.unprotected(steps), whole)
