"""The bench of fairness: it plays what it says, and its measures agree with hand-made histories and the core's books."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.adapters.bench.worlds.fairness import scenarios
from apportion.adapters.bench.worlds.fairness.play import Play
from apportion.adapters.bench.worlds.fairness.service import Rate, Service
from apportion.adapters.bench.worlds.fairness.waiting import Allowed, Since, Waits
from apportion.adapters.bench.worlds.fairness.workload import Demand, generate, sizes_for
from apportion.adapters.comparing.measures import Shares
from apportion.adapters.comparing.setting import START_MS, Setting
from apportion.adapters.comparing.toll import Toll
from apportion.adapters.simulation.job import Job
from apportion.core.decisions import (
    Certificate,
    CycleBatch,
    PoolBooks,
    RunClosed,
    RunPlaced,
    RunPreempted,
    WorkloadAdmitted,
    WorkloadClosed,
)
from apportion.core.units import MILLI, MS_PER_DAY, MS_PER_HOUR, gpu_us

HOUR = MS_PER_HOUR
TREE = (("a", 500_000), ("b", 500_000), ("b/x", 500_000), ("b/y", 500_000))
SMALL = Setting(nodes=4, tree=TREE)


def batch(hours: float, *decisions: Any, supply: int = 0, used: int = 0) -> CycleBatch:
    books = PoolBooks(pool="h100", supply=supply, down=0, idle=supply - used, unfunded=0, funded=used)
    time_ms = START_MS + int(hours * HOUR)
    return CycleBatch(
        core=1, cycle=1, seq=1, time_ms=time_ms, chain="", digest="", decisions=tuple(decisions), books=(books,)
    )


def admitted(workload: str, budget: str, gpus: int) -> WorkloadAdmitted:
    return WorkloadAdmitted(
        workload=workload, event_seq=1, budget=budget, pool="h100", nodes=1, milli_per_node=gpus * MILLI, min_runtime_ms=HOUR
    )


def placed(workload: str, budget: str, gpus: int, run: int = 1) -> RunPlaced:
    return RunPlaced(
        workload=workload, run=run, budget=budget, pool="h100", gpus_milli=gpus * MILLI, pieces=(), payer="budget",
        why="within_allowance", protected_until_ms=0, reserved_gpu_us=0,
    )  # fmt: skip


def closed(workload: str, budget: str, gpus: int, from_h: float, to_h: float, **more: Any) -> RunClosed:
    return RunClosed(
        workload=workload, run=more.pop("run", 1), budget=budget, pool="h100", outcome="succeeded",
        placed_ms=START_MS + int(from_h * HOUR), end_ms=START_MS + int(to_h * HOUR), gpus_milli=gpus * MILLI,
        charged_gpu_us=0, unfunded_gpu_us=0, **more,
    )  # fmt: skip


def preempted(workload: str, taker: str, loser: str) -> RunPreempted:
    certificate = Certificate(
        beneficiary="w", beneficiary_budget=taker, beneficiary_gpus_milli=1, beneficiary_running_milli=0,
        beneficiary_allowance_milli=1, victim_budget=loser, victim_gpus_milli=1, victim_running_milli=1,
        victim_allowance_milli=0, ran_ms=HOUR, lost_gpu_us=0, freed_milli=1, needed_milli=1,
    )  # fmt: skip
    return RunPreempted(workload=workload, run=1, grace_until_ms=0, certificate=certificate)


def test_equal_seeds_give_equal_jobs_and_other_seeds_others() -> None:
    setting, demand = Setting(), Demand(days=2)
    jobs = generate(3, setting, demand)
    assert jobs == generate(3, setting, demand)
    assert jobs != generate(4, setting, demand)
    assert [job.submit_ms for job in jobs] == sorted(job.submit_ms for job in jobs)


def test_every_budget_asks_for_about_three_times_its_share() -> None:
    setting, demand = Setting(), Demand(days=60)
    jobs = generate(1, setting, demand)
    for leaf in setting.leaves():
        asked = sum(job.gpus * job.duration_ms for job in jobs if job.program == leaf)
        due = setting.guarantee_milli(leaf) / MILLI * (demand.days * 24 + 6) * HOUR
        assert 2.7 < asked / due < 3.3, leaf


@pytest.mark.parametrize(("reach_milli", "largest"), [(1_000, 128), (4_000, 512)])
def test_gangs_reach_up_to_their_bound(reach_milli: int, largest: int) -> None:
    sizes = sizes_for(Setting(), "llm/base", Demand(reach_milli=reach_milli))
    assert sizes[0] == 1
    assert sizes[-1] == largest


def test_shares_of_the_tree_multiply_down_to_the_leaf() -> None:
    setting = Setting()
    assert setting.share_ppm("llm/base") == 175_000
    assert sum(setting.share_ppm(leaf) for leaf in setting.leaves()) == 1_000_000
    assert len(setting.leaves()) == 9


def test_due_is_the_water_fill_of_what_was_delivered_and_got_is_what_ran() -> None:
    shares = Shares(TREE, START_MS, START_MS + 4 * HOUR)
    history = [
        batch(0, admitted("1", "a", 8), admitted("2", "b/x", 8), placed("1", "a", 8), placed("2", "b/x", 8)),
        batch(1, admitted("3", "b/y", 8)),  # b/y waits: b's half is divided
        batch(3, closed("2", "b/x", 8, 0, 2), WorkloadClosed(workload="2", outcome="succeeded", runs=1)),
        batch(5),
    ]
    for one in history:
        shares.take(None, one)
    unit = MILLI * HOUR
    assert dict(zip(shares.paths, shares.got[1:].tolist(), strict=True)) == {
        "a": 32 * unit, "b": 16 * unit, "b/x": 16 * unit, "b/y": 0,
    }  # fmt: skip
    # hour 1: 8 and 8; hour 2: 8, and b's 8 in halves; hours 3 and 4: 8 are delivered, a and b/y ask for 8 each
    assert dict(zip(shares.paths, shares.due[1:].tolist(), strict=True)) == {
        "a": 24 * unit, "b": 24 * unit, "b/x": 12 * unit, "b/y": 12 * unit,
    }  # fmt: skip
    assert shares.part_of_due("a") == pytest.approx(32 / 24)
    assert shares.worst_error_pct(shares.leaf_paths()) == pytest.approx(100)
    assert shares.worst_error_pct(["a"]) == pytest.approx(100 / 3)


def test_a_change_of_shares_changes_what_is_due_from_its_instant_on() -> None:
    changes = [(START_MS + HOUR, (("a", 250_000), ("b", 750_000)))]
    shares = Shares(TREE, START_MS, START_MS + 2 * HOUR, changes)
    shares.take(None, batch(0, admitted("1", "a", 8), admitted("2", "b/x", 8), placed("1", "a", 8), placed("2", "b/x", 8)))
    shares.take(None, batch(0, admitted("3", "a", 8), admitted("4", "b/x", 8)))
    shares.take(None, batch(2))
    assert int(shares.due[shares.row_of["a"]]) == 8 * MILLI * HOUR + 4 * MILLI * HOUR


def test_a_budget_that_takes_back_within_the_quantum_alternates_and_later_does_not() -> None:
    toll = Toll(START_MS, START_MS + 9 * HOUR, HOUR, 0)
    toll.take(None, batch(0, *(placed(name, "a", 1) for name in "123")))
    toll.take(None, batch(1, preempted("1", "a", "b/x"), preempted("2", "a", "b/x")))
    toll.take(None, batch(1.9, preempted("3", "b/x", "a")))
    assert toll.alternations == 1
    toll.take(None, batch(2.9, preempted("3", "a", "b/x")))
    assert toll.alternations == 1
    assert toll.preemptions == 4
    assert toll.ran == {"1": 1, "2": 1, "3": 2}


def test_lost_time_is_what_was_not_saved_and_what_loads_a_checkpoint() -> None:
    toll = Toll(START_MS, START_MS + 9 * HOUR, HOUR, restart_ms=180_000)
    toll.take(None, batch(0, supply=0, used=0))
    first = closed("1", "a", 10, 0, 1, lost_gpu_us=gpu_us(10 * MILLI, 60_000))
    second, supply, used = closed("1", "a", 10, 1, 2, run=2), gpu_us(20 * MILLI, 2 * HOUR), gpu_us(10 * MILLI, 2 * HOUR)
    toll.take(None, batch(2, first, second, supply=supply, used=used))
    assert toll.lost_us == gpu_us(10 * MILLI, 60_000 + 180_000)
    assert toll.occupancy_pct == pytest.approx(50)
    assert toll.lost_pct == pytest.approx(100 * 4 / 120)


def test_often_counts_workloads_preempted_more_than_three_times() -> None:
    toll = Toll(START_MS, START_MS + 99 * HOUR, HOUR, 0)
    toll.take(None, batch(0, *(placed(name, "a", 1) for name in "1234")))
    for number in range(4):
        toll.take(None, batch(2 + 2 * number, preempted("1", "b", "a"), *([preempted("2", "b", "a")] * (number < 3))))
    assert toll.often_pct == pytest.approx(25)


def test_the_longest_gap_and_the_rate_of_a_budget() -> None:
    service, rate = Service("b", START_MS, START_MS + 10 * HOUR), Rate("b", 2 * HOUR)
    for watcher in (service, rate):
        watcher.take(None, batch(2, placed("1", "b/x", 4)))
        watcher.take(None, batch(4, closed("1", "b/x", 4, 2, 3)))
        watcher.take(None, batch(8, placed("2", "b/y", 4), placed("3", "a", 4)))
    assert service.longest_gap_ms() == 5 * HOUR
    assert rate.mean_milli(START_MS + 2 * HOUR, START_MS + 4 * HOUR) == pytest.approx(2 * MILLI)
    end = START_MS + 20 * HOUR
    assert rate.reached_ms(START_MS + 4 * HOUR, 4 * MILLI, end) == pytest.approx(6 * HOUR - HOUR / 5, abs=HOUR / 12)


def test_a_stay_is_unbroken_and_counts_while_it_lasts() -> None:
    since = Since(from_ms=10)
    for now_ms, names in ((0, "a"), (10, "ab"), (20, "b"), (30, "ab"), (70, "a")):
        since.now(now_ms, dict.fromkeys(names))
    assert since.stays_ms == [20, 60]
    assert since.longest_ms == 60
    assert since.percentile_ms(50) == 60


def test_a_day_of_a_small_cluster_adds_up_with_the_books_of_the_core() -> None:
    jobs = generate(1, SMALL, Demand(days=1))
    shares, toll = Shares(TREE, START_MS, START_MS + MS_PER_DAY), Toll(START_MS, START_MS + MS_PER_DAY, HOUR, 180_000)
    waits, allowed = Waits(START_MS), Allowed()
    play = Play(SMALL, jobs, [shares, toll, waits, allowed])
    play.run(START_MS + MS_PER_DAY + SMALL.cycle_ms)
    assert play.core.state.counters.refused == 0
    assert toll.used_us == int(shares.got[0])
    assert int(shares.due[0]) == int(shares.got[0])
    assert toll.supply_us == gpu_us(32 * MILLI, MS_PER_DAY)
    assert toll.occupancy_pct > 90
    queued = play.core.state.queue[: play.core.state.queued]
    assert int(shares.waiting[0]) == int(play.core.state.workload.gpus_milli[queued].sum())
    assert waits.first.longest_ms >= waits.funded.longest_ms
    assert 0.5 < allowed.mean(START_MS, START_MS + MS_PER_DAY) <= 1


def test_a_stopped_run_saves_loads_and_does_the_rest_of_its_work() -> None:
    hog = [Job(f"hog-{number}", 0, 10 * HOUR, 8, "a") for number in range(4)]
    other = [Job(f"other-{number}", 30 * 60_000, HOUR, 8, "b/x") for number in range(2)]
    batches: list[CycleBatch] = []

    class Keep:
        def take(self, _core: Any, one: CycleBatch) -> None:
            batches.append(one)

    Play(SMALL, [*hog, *other], [Keep()]).run(START_MS + 14 * HOUR)
    said = [decision for one in batches for decision in one.decisions]
    victims = {decision.workload for decision in said if isinstance(decision, RunPreempted)}
    assert len(victims) == 2
    for account in (one for one in said if isinstance(one, RunClosed) and one.workload in victims):
        held_ms = account.end_ms - account.placed_ms
        assert held_ms == (HOUR + 20_000 if account.run == 1 else 9 * HOUR + SMALL.restart_ms)
    over = [one.workload for one in said if isinstance(one, WorkloadClosed)]
    assert sorted(over) == sorted(job.job_id for job in [*hog, *other])


def test_work_withdrawn_at_night_leaves_no_demand() -> None:
    setting = SMALL._replace(cycle_ms=5 * 60_000)
    jobs = generate(1, setting, Demand(days=1))
    play = Play(setting, jobs, withdrawals=[(START_MS + 20 * HOUR, setting.leaves())])
    play.run(START_MS + 20 * HOUR + 600_000)
    state = play.core.state
    late = [job for job in jobs if 20 * HOUR < job.submit_ms <= 20 * HOUR + 300_000]
    assert len(state.workload) == len(late)


def test_a_scenario_gives_its_figures() -> None:
    figures = scenarios.steady(SMALL, 1, days=2)
    assert figures["alternations"] == 0
    assert 0 <= figures["program_err_pct"] < 100
    assert figures["occupancy_pct"] > 90
