"""Plans are valid, never worth more than every plan tried, found again from the same instance, and what the naive decoder makes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apportion.adapters.bench.worlds.horizon import scenarios
from apportion.adapters.bench.worlds.horizon.fifo import fifo, fifo_plus
from apportion.core.horizon import check
from apportion.core.horizon import instance as inst
from apportion.core.horizon.columns import board_of, setting_of
from apportion.core.horizon.plan import Plan
from apportion.core.horizon.planner import plan
from apportion.core.kernels import curves, horizon
from tests.compiled import without_settings
from tests.horizon import naive
from tests.horizon.strategies import FAR, instances, tiny

ROOT = Path(__file__).resolve().parent.parent.parent
quick = settings(derandomize=True, max_examples=100, deadline=None)


def digest(made: Plan) -> str:
    told = hashlib.sha256(f"{made.objective} {made.unmet} {made.late.tolist()}".encode())
    for column in (made.start, made.first, made.held):
        told.update(column.tobytes())
    return told.hexdigest()


@quick
@given(instances(), st.integers(0, 300))
def test_every_plan_is_valid_and_says_what_it_is_worth(instance: inst.Instance, candidates: int) -> None:
    assert check.violations(instance, plan(instance, candidates)) == []


@quick
@given(instances())
def test_the_baselines_overlap_nothing_and_keep_ranges_and_caps(instance: inst.Instance) -> None:
    for made in (fifo(instance), fifo_plus(instance)):
        rules = {violation.rule for violation in check.violations(instance, made)}

        assert rules <= {"wait"}, "only the wait bound is unknown to them"


@quick
@given(instances(), st.integers(0, 200))
def test_the_same_instance_gives_the_same_plan(instance: inst.Instance, candidates: int) -> None:
    assert digest(plan(instance, candidates)) == digest(plan(instance, candidates))


def test_more_candidates_are_not_worse_on_a_scenario_and_draws_come_from_the_instance() -> None:
    one, other = (scenarios.scenario("uniform-priority", seed) for seed in (1, 2))

    assert plan(one, 4_000).objective >= plan(one, 0).objective
    assert digest(plan(one, 500)) != digest(plan(other, 500))


def test_plans_of_tiny_instances_are_never_better_than_the_best_and_nearly_always_the_best() -> None:
    found: list[bool] = []

    @settings(derandomize=True, max_examples=120, deadline=None)
    @given(tiny())
    def all_of_them(instance: inst.Instance) -> None:
        made, best = plan(instance, 400).objective, naive.best(instance)
        assert made <= best
        found.append(made == best)

    all_of_them()

    assert sum(found) >= len(found) * 90 // 100, f"{sum(found)} of {len(found)}"


@quick
@given(tiny())
def test_without_services_the_best_order_is_found(instance: inst.Instance) -> None:
    alone = instance._replace(services=inst.no_services(instance.steps))

    assert plan(alone, 200).objective == naive.best_order(alone, np.zeros((1, alone.steps), dtype=np.int64))


@quick
@given(instances(), st.randoms(use_true_random=False))
def test_the_decoder_is_the_naive_one(instance: inst.Instance, random: object) -> None:
    instance = instance._replace(protected=inst.unprotected(instance.steps))
    instance = instance._replace(
        jobs=instance.jobs._replace(budget=instance.jobs.budget * 0 - 1),
        pinned=instance.pinned._replace(budget=instance.pinned.budget * 0 - 1),
    )
    order = list(range(len(instance.jobs.id)))
    random.shuffle(order)  # type: ignore[attr-defined]  # the strategy's own type is private
    setting = setting_of(instance)
    board, _running = board_of(instance)
    held = setting.floors.sum(axis=0)
    board.room[:] -= held
    start, first = np.zeros(len(order), dtype=np.int64), np.zeros(len(order), dtype=np.int64)

    horizon.follow(board, setting.jobs, np.array(order, dtype=np.int64), 0, start, first)

    assert (start.tolist(), first.tolist()) == naive.decode(instance, order, held)


@quick
@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(0, 10))
def test_curves_are_the_least_above_and_the_greatest_below(line: list[int], cap: int) -> None:
    column, above, below = np.array(line, dtype=np.int64), *np.zeros((2, len(line)), dtype=np.int64)

    curves.narrowest(column, cap, -1, above)
    curves.widest(column, cap, -1, below)

    assert above.tolist() == naive.majorant(line, cap)
    assert below.tolist() == naive.minorant(line, cap)


@quick
@given(instances(gpus=(64,)), st.integers(0, 200))
def test_more_words_of_gpus_that_are_all_taken_change_nothing(instance: inst.Instance, candidates: int) -> None:
    """64 GPUs plan as 1,024 of which 960 run something to the end."""
    assume(not len(instance.protected))  # what is kept for budgets counts all GPUs
    wide = instance._replace(gpus=1_024)
    rest = np.array([[64, 960, 1 << 19, -1]], dtype=np.int64)
    wide = wide._replace(pinned=inst.Pinned(*np.concatenate((np.stack(instance.pinned, axis=1), rest)).T.copy()))
    setting, wider = setting_of(instance), setting_of(wide)
    order = np.arange(len(instance.jobs.id), dtype=np.int64)
    found = []
    for one, made_of in ((instance, setting), (wide, wider)):
        board, running = board_of(one)
        other, _running = board_of(one)
        board.room[:] -= setting.ceilings.sum(axis=0)
        low = setting.ceilings.copy()
        horizon.settle(board, running, low, setting.floors, setting.services)
        start, first = np.full((2, len(order)), -1, dtype=np.int64)
        best = [start.copy(), first.copy(), low.copy()]
        must = np.zeros(len(order), dtype=np.bool_)
        value = horizon.search(
            board, other, made_of.jobs, made_of.worth, must, order.copy(), 0, start, first, running, low, setting.floors,
            setting.ceilings, setting.demand, setting.services, 1, candidates, 1_000, np.array([7], dtype=np.int64), *best,
        )  # fmt: skip
        found.append((value, *(column.tolist() for column in best)))

    assert found[0] == found[1]


def test_a_job_that_falls_due_goes_before_all_that_are_worth_more() -> None:
    steps = 8
    rows = [(1, 4, 4, 1, 0, 3, 20), *((number, 4, 8, 9, 0, FAR, 0) for number in range(2, 5))]
    instance = inst.Instance(
        4, steps, inst.jobs(rows), inst.pinned([]), inst.no_services(steps), inst.decaying(40, 60_000), inst.unprotected(steps)
    )

    made = plan(instance, 200)

    assert 0 <= made.start[0] <= 3
    assert check.violations(instance, made) == []


def test_services_give_way_to_a_job_that_falls_due_and_only_as_far_as_they_may() -> None:
    steps = 4
    demand = np.full((1, steps), 3, dtype=np.int64)
    column = np.array([0], dtype=np.int64)
    services = inst.Services(demand * 0 + 1, demand, demand, column + 4, column - 1, column + 9, column + 9)
    for gpus, started in ((2, True), (4, False)):
        instance = inst.Instance(
            4, steps, inst.jobs([(1, gpus, 4, 1, 0, 0, 0)]), inst.pinned([]), services, inst.decaying(9, inst.ONE),
            inst.unprotected(steps),
        )  # fmt: skip
        made = plan(instance, 100)

        assert bool(made.start[0] == 0) is started
        assert (len(made.late) == 0) is started
        assert made.held.min() >= 1
        assert check.violations(instance, made) == []


def test_what_is_kept_for_a_budget_is_left_to_it() -> None:
    steps = 4
    kept = np.array([[4] * steps, [0] * steps], dtype=np.int64)
    jobs = inst.jobs([(1, 8, 2, 9, 0, FAR, 0, 1), (2, 4, 2, 9, 0, FAR, 0, 1), (3, 4, 2, 1, 0, FAR, 0, 0)])
    instance = inst.Instance(8, steps, jobs, inst.pinned([]), inst.no_services(steps), inst.decaying(9, inst.ONE), kept)

    made = plan(instance, 100)

    assert made.start[0] == -1, "the other half is kept"
    assert made.start[1] >= 0
    assert made.start[2] >= 0
    assert check.violations(instance, made) == []


def test_a_cap_of_nothing_holds_a_constant() -> None:
    demand = np.array([[1, 5, 2, 0]], dtype=np.int64)
    column = np.array([0], dtype=np.int64)
    services = inst.Services(demand * 0, demand, demand * 0 + 8, column, column - 1, column + 1, column + 5)
    instance = inst.Instance(
        8, 4, inst.jobs([]), inst.pinned([]), services, inst.decaying(4, inst.ONE), inst.unprotected(4)
    )

    made = plan(instance, 100)

    assert made.held.tolist() == [[5, 5, 5, 5]]
    assert made.unmet == 0


TOLD = """
import json
from apportion.adapters.bench.worlds.horizon import scenarios
from apportion.core.horizon.planner import plan
from tests.horizon.test_planner import digest
names = ("bursty-realtime", "fragmentation")
print(json.dumps([digest(plan(scenarios.scenario(name, 3), 60)) for name in names]))
"""


@pytest.mark.parametrize(
    "settings_of",
    [
        {"NUMBA_DISABLE_JIT": "1"},
        {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        {"PYTHONHASHSEED": "1"},
    ],
    ids=["no machine code", "any processor", "hash seed"],
)
def test_every_environment_makes_the_same_plan(settings_of: dict[str, str]) -> None:
    here = [digest(plan(scenarios.scenario(name, 3), 60)) for name in ("bursty-realtime", "fragmentation")]
    path = os.pathsep.join((str(ROOT / ".ns"), str(ROOT)))

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TOLD], cwd=ROOT, env=without_settings() | {"PYTHONPATH": path} | settings_of,
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2_000:]
    assert json.loads(done.stdout) == here
