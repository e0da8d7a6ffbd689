"""Decayed usage of budgets, as the baseline ``fair_tree`` remembers it: exact sums of events, the same at any sampling.

Usage of one half-life ago counts half. Instead of shrinking old usage at every look (which rounds at every look, and so
depends on how often one looks), new usage counts more: inside a half-life that began at a multiple of it, a GPU-microsecond at
``x`` ms counts ``2 ** (x / half_life)``, from 1 up to 2; at the end of each half-life all sums are halved, rounding down. So
between two of these fixed instants ``usage_us`` grows by rate x (area(x1) - area(x0)), which telescopes: accruing in a thousand
steps gives the bytes of accruing in one. A ratio of two usages, which is all an order needs, needs no further step;
``decayed_us`` gives the amount people know.

``area`` is the integral of the weight, in integers: exact (rounded down) at 256 knots per half-life, straight between them,
which is off by at most 3 millionths of a half-life. The knots come from integer square roots, so they are equal everywhere.

Counted is what runs, funded or not, but work on idle cycles is not (who asks for nothing raises no debt). Pure functions of the
state's columns, called by ``ledger`` before any rate changes, and by the fold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.state import schema
from apportion.core.state.state import State

I64 = NDArray[np.int64]

SCALE = 1 << 60
KNOTS = 256
INVERSE_LN2 = 1_663_314_137_230_540_311  # 2**60 / ln 2, rounded down


def _root(value: int) -> int:
    """Return the square root, rounded down (Newton, from above)."""
    guess = 1 << (value.bit_length() + 1) // 2
    while (better := (guess + value // guess) // 2) < guess:
        guess = better
    return guess


def _powers() -> tuple[int, ...]:
    """Return 2 ** (k / KNOTS) in units of SCALE for k = 0 .. KNOTS, from repeated square roots."""
    steps = [2 * SCALE]  # 2 ** 1, then 2 ** (1/2), 2 ** (1/4), ...
    while 1 << (len(steps) - 1) < KNOTS:
        steps.append(_root(steps[-1] * SCALE))
    powers = []
    for knot in range(KNOTS + 1):
        value = SCALE
        for bit, step in enumerate(steps):
            if knot >> (len(steps) - 1 - bit) & 1:
                value = value * step // SCALE
        powers.append(value)
    return tuple(powers)


POWERS = _powers()


def weight(x_ms: int, half_life_ms: int) -> int:
    """Return what a GPU-microsecond counts ``x_ms`` after the last halving, in units of SCALE: from 1 to 2."""
    knot, rest = divmod(x_ms * KNOTS, half_life_ms)
    if not rest:
        return POWERS[knot]
    return POWERS[knot] + (POWERS[knot + 1] - POWERS[knot]) * rest // half_life_ms


def area_ms(x_ms: int, half_life_ms: int) -> int:
    """Return the integral of the weight from the last halving to ``x_ms`` after it, in ms: half_life / ln 2 x (2^.. - 1)."""
    return (weight(x_ms, half_life_ms) - SCALE) * half_life_ms * INVERSE_LN2 // (SCALE * SCALE)


def accrue_usage(state: State, from_ms: int, to_ms: int) -> None:
    """Bring the usage of all leaves of pools under ``fair_tree`` from ``from_ms`` to ``to_ms`` at the present rates."""
    budget = state.budget
    for pool in np.flatnonzero(state.pool.column("policy") == schema.FAIR_TREE):
        rows = np.flatnonzero((budget.column("pool") == pool) & (budget.column("children") == 0))
        half_life_ms = int(state.pool.half_life_ms[pool])
        budget.usage_us[rows] = grown(budget.usage_us[rows], budget.running_milli[rows], from_ms, to_ms, half_life_ms)


def grown(usage: I64, rate_milli: I64, from_ms: int, to_ms: int, half_life_ms: int) -> I64:
    """Return ``usage`` after running at ``rate_milli`` from one instant to another."""
    now_ms = from_ms
    while now_ms < to_ms:
        x_ms = now_ms % half_life_ms
        halving_ms = now_ms - x_ms + half_life_ms
        if to_ms < halving_ms:
            return usage + rate_milli * (area_ms(to_ms - now_ms + x_ms, half_life_ms) - area_ms(x_ms, half_life_ms))
        before = usage
        usage = (usage + rate_milli * (area_ms(half_life_ms, half_life_ms) - area_ms(x_ms, half_life_ms))) >> 1
        now_ms = halving_ms
        if x_ms == 0 and bool((usage == before).all()):
            now_ms = max(now_ms, to_ms - to_ms % half_life_ms)  # a whole half-life changed nothing: neither will the next
    return usage


def decayed_us(state: State, row: int) -> int:
    """Return a leaf's usage at ``accrued_ms`` in GPU-microseconds, each counted by its age; rounded down."""
    half_life_ms = int(state.pool.half_life_ms[int(state.budget.pool[row])])
    return int(state.budget.usage_us[row]) * SCALE // weight(state.counters.accrued_ms % half_life_ms, half_life_ms)


def change_half_life(state: State, pool: int, half_life_ms: int) -> None:
    """From now on usage decays at another speed; what it amounts to now stays. The caller has accrued."""
    now_ms, old_ms = state.counters.accrued_ms, int(state.pool.half_life_ms[pool])
    was, becomes = weight(now_ms % old_ms, old_ms), weight(now_ms % half_life_ms, half_life_ms)
    for row in np.flatnonzero(state.budget.column("pool") == pool):
        state.budget.usage_us[row] = int(state.budget.usage_us[row]) * becomes // was
    state.pool.half_life_ms[pool] = half_life_ms
