"""What cannot be meant is refused, with the number that is wrong; what is out of a service's reach can be brought into it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.horizon import instance as inst
from apportion.core.horizon.planner import plan
from tests.horizon.strategies import FAR

STEPS = 4


def instance(**changes: object) -> inst.Instance:
    demand = np.array([[2, 3, 2, 1]], dtype=np.int64)
    column = np.array([0], dtype=np.int64)
    one = inst.Instance(
        8, STEPS, inst.jobs([(1, 2, 3, 5, 0, FAR, 0)]), inst.pinned([(0, 2, 2)]),
        inst.Services(demand * 0, demand, demand + 1, column + 1, column - 1, column + 1, column + 5),
        inst.decaying(8, 60_000), inst.unprotected(STEPS),
    )  # fmt: skip
    return one._replace(**changes)  # type: ignore[arg-type]  # tests give the wrong types on purpose


def job(*row: int) -> Callable[[], inst.Instance]:
    return lambda: instance(jobs=inst.jobs([row]))


def service(name: str, value: object) -> Callable[[], inst.Instance]:
    return lambda: instance(services=instance().services._replace(**{name: np.array(value, dtype=np.int64)}))


REFUSED: dict[str, tuple[str, Callable[[], inst.Instance]]] = {
    "no power of two": ("job 1 asks for 6 GPUs: a block is a power of two; ask for 8", job(1, 6, 3, 5, 0, FAR, 0)),
    "more GPUs than there are": (r"jobs.gpus\[0\] is 16, must be 1 to 8", job(1, 16, 3, 5, 0, FAR, 0)),
    "no GPUs": (r"jobs.gpus\[0\] is 0", job(1, 0, 3, 5, 0, FAR, 0)),
    "no time": (r"jobs.duration\[0\] is 0", job(1, 2, 0, 5, 0, FAR, 0)),
    "a priority below nothing": (r"jobs.priority\[0\] is -1", job(1, 2, 3, -1, 0, FAR, 0)),
    "an absurd duration": (r"jobs.duration\[0\] is 4611686018427387904", job(1, 2, 1 << 62, 5, 0, FAR, 0)),
    "an unknown budget": (r"jobs.budget\[0\] is 3, must be -1 to -1", job(1, 2, 3, 5, 0, FAR, 0, 3)),
    "one id twice": ("two jobs have the same id", lambda: instance(jobs=inst.jobs([(1, 2, 3, 5, 0, FAR, 0)] * 2))),
    "no GPUs at all": ("gpus is 0, must be 1 to 1024", lambda: instance(gpus=0)),
    "too many GPUs": ("gpus is 4096", lambda: instance(gpus=4_096)),
    "no steps": ("steps is 0", lambda: instance(steps=0)),
    "too many steps": ("steps is 100000", lambda: instance(steps=100_000)),
    "demand below nothing": (r"services.demand\[0, 1\] is -3", service("demand", [[2, -3, 2, 1]])),
    "demand beyond all": (r"services.demand\[0, 1\] is 9000", service("demand", [[2, 9_000, 2, 1]])),
    "a curve with a gap": (r"services.demand has shape \(1, 3\), expected \(1, 4\)", service("demand", [[2, 3, 2]])),
    "a cap below nothing": (r"services.cap\[0\] is -1", service("cap", [-1])),
    "a range out of reach": ("service 0 must hold 3 GPUs at step 3 and may hold 2", service("least", [[0, 0, 0, 3]])),
    "services beyond the rest": (
        "services must hold 7 GPUs at step 0, and running work leaves 6",
        lambda: instance(services=instance().services._replace(least=np.full((1, 4), 7), most=np.full((1, 4), 7))),
    ),
    "running work twice on a GPU": (
        "pinned work 1 is on GPUs 1 to 2", lambda: instance(pinned=inst.pinned([(0, 2, 2), (1, 2, 2)])),
    ),
    "running work beyond the GPUs": ("pinned work 0 is on GPUs 7 to 8", lambda: instance(pinned=inst.pinned([(7, 2, 2)]))),
    "no decay table": ("the decay table is empty", lambda: instance(decay=np.zeros(0, dtype=np.int64))),
    "floats": ("decay is of float64, must be int64", lambda: instance(decay=np.ones(3))),
    "another length": (
        "jobs.age has 2 rows, expected 1",
        lambda: instance(jobs=instance().jobs._replace(age=np.zeros(2, dtype=np.int64))),
    ),
    "kept for budgets at too few steps": ("protected has shape", lambda: instance(protected=np.zeros((1, 3), dtype=np.int64))),
    "more than can be counted": (
        "all together would be worth",
        lambda: instance(
            gpus=1_024, steps=336, services=inst.no_services(336), protected=inst.unprotected(336),
            jobs=inst.jobs([(number, 1_024, 336, 1_000_000, 0, FAR, 0) for number in range(30)]),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_with_its_number(name: str) -> None:
    says, made = REFUSED[name]

    with pytest.raises(inst.BadInstance, match=says):
        plan(made(), 10)


def test_the_instance_that_they_are_made_of_is_good() -> None:
    inst.check(instance())


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.data())
def test_what_is_out_of_reach_is_brought_into_it_and_nothing_else_is_changed(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3))
    line = st.lists(st.integers(0, 12), min_size=STEPS, max_size=STEPS)
    least = np.array([data.draw(line) for _a in range(count)], dtype=np.int64)
    most = least + np.array([data.draw(line) for _a in range(count)], dtype=np.int64)
    cap, initial = (np.array([data.draw(st.integers(low, 6)) for _a in range(count)], dtype=np.int64) for low in (0, -1))
    services = inst.Services(least, least, most, cap, initial, cap * 0 + 1, cap * 0 + 5)
    gpus = np.full(STEPS, 30, dtype=np.int64)

    found, changed = inst.reachable(services, gpus)

    one = instance(gpus=30, pinned=inst.pinned([]), services=found)
    inst.check(one)
    assert (found.least <= least).all()
    assert (found.most >= most).all()
    try:
        inst.check(one._replace(services=services))
    except inst.BadInstance:
        assert changed > 0
    else:
        assert changed == 0


@pytest.mark.parametrize("keep", [0, 1, 30_000, inst.ONE])
def test_a_decay_table_never_rises(keep: int) -> None:
    table = inst.decaying(50, keep)

    assert table[0] == inst.ONE
    assert (np.diff(table) <= 0).all()
    assert table.min() >= 0
