"""The validator sees each kind of violation when one is put into a plan, and nothing in a good one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from apportion.core.horizon import check
from apportion.core.horizon import instance as inst
from apportion.core.horizon.plan import Plan
from tests.horizon.strategies import FAR

STEPS = 6


def instance() -> inst.Instance:
    """8 GPUs: two run something for two steps, one service of 1 to 3 GPUs, budget 0 has two GPUs kept."""
    demand = np.array([[2, 2, 3, 2, 1, 1]], dtype=np.int64)
    column = np.array([0], dtype=np.int64)
    return inst.Instance(
        8, STEPS,
        inst.jobs([(10, 2, 3, 5, 0, 3, 0, 0), (11, 2, 2, 1, 1, FAR, 0, 1), (12, 4, 2, 1, 0, FAR, 0, 1)]),
        inst.pinned([(0, 2, 2)]),
        inst.Services(demand * 0 + 1, demand, demand * 0 + 3, column + 1, column + 2, column + 1, column + 5),
        inst.decaying(12, 60_000), np.array([[2] * STEPS, [0] * STEPS], dtype=np.int64), whole=True,
    )  # fmt: skip


def good() -> Plan:
    """A plan of it: job 10 at step 0 on GPUs 2 and 3; 11 at step 4 on 0 and 1; 12 nowhere."""
    held = np.array([[2, 2, 3, 2, 1, 1]], dtype=np.int64)
    start, first = np.array([0, 4, -1], dtype=np.int64), np.array([2, 0, -1], dtype=np.int64)
    made = Plan(start, first, held, 0, 0, np.zeros(0, dtype=np.int64), False, 0)
    return made._replace(objective=check.objective(instance(), made))


def moved(row: int, start: int, first: int) -> Plan:
    made = good()
    made.start[row], made.first[row] = start, first
    return made._replace(objective=check.objective(instance(), made))


def holding(*values: int) -> Plan:
    made = good()._replace(held=np.array([values], dtype=np.int64))
    lacking = np.maximum(0, instance().services.demand - made.held).sum()
    return made._replace(objective=check.objective(instance(), made), unmet=int(lacking))


def test_a_good_plan_has_nothing_wrong() -> None:
    inst.check(instance())

    assert check.violations(instance(), good()) == []


def test_the_objective_is_what_the_formula_says() -> None:
    decay = instance().decay
    jobs = 5 * 2 * 3 * int(decay[0]) + 1 * 2 * 2 * int(decay[4])

    assert good().objective == jobs + inst.ONE * 11


INJECTED: dict[str, tuple[str, Callable[[], Plan]]] = {
    "two jobs on a GPU": ("overlap", lambda: moved(1, 1, 2)),
    "on running work": ("interruption", lambda: moved(1, 1, 0)),
    "not aligned": ("block", lambda: moved(1, 4, 3)),
    "beyond the GPUs": ("block", lambda: moved(1, 4, 8)),
    "too early": ("start", lambda: moved(1, 0, 4)),
    "ends after the horizon": ("start", lambda: moved(1, 5, 0)),
    "after its bound": ("wait", lambda: moved(0, 4, 2)),
    "due and not planned": ("wait", lambda: moved(0, -1, -1)),
    "called late, and is not": ("wait", lambda: good()._replace(late=np.array([0], dtype=np.int64))),
    "late, and could have been in time": ("wait", lambda: moved(0, -1, -1)._replace(late=np.array([0], dtype=np.int64))),
    "below the range": ("range", lambda: holding(1, 1, 1, 1, 1, 0)),
    "above the range": ("range", lambda: holding(3, 3, 4, 3, 2, 1)),
    "swaps too many": ("cap", lambda: holding(2, 2, 3, 1, 1, 1)),
    "swaps too many at once": ("cap", lambda: holding(3, 3, 3, 2, 2, 2)._replace(held=np.array([[0, 1, 2, 2, 1, 1]]))),
    "more than there is": ("capacity", lambda: moved(2, 0, 4)),
    "what is kept for a budget": ("protected", lambda: moved(2, 4, 4)),
    "another objective": ("objective", lambda: good()._replace(objective=good().objective + 1)),
    "another unmet demand": ("unmet", lambda: good()._replace(unmet=1)),
    "another shape": ("shape", lambda: good()._replace(start=np.zeros(2, dtype=np.int64))),
}


@pytest.mark.parametrize("name", INJECTED)
def test_each_kind_of_violation_is_seen(name: str) -> None:
    rule, made = INJECTED[name]

    found = check.violations(instance(), made())

    assert rule in {violation.rule for violation in found}, found
    assert all(violation.what for violation in found)


def test_a_late_job_that_could_not_be_in_time_is_no_violation() -> None:
    one = instance()._replace(pinned=inst.pinned([(0, 2, 6), (2, 1, 5), (4, 1, 5), (6, 1, 5)]), whole=False)
    made = good()
    made.start[:], made.first[:] = (5, -1, -1), (2, -1, -1)
    made = made._replace(late=np.array([0], dtype=np.int64))
    made = made._replace(objective=check.objective(one, made))

    assert check.violations(one, made) == []
