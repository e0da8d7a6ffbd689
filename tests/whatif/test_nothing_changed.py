"""Calibration: what-if with nothing changed is history, and with something that matters to nobody it is nearly nothing."""

from __future__ import annotations

from itertools import accumulate

import pytest

from apportion.adapters.simulation.faults import ROUGH
from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.stated import OPERATOR, stated
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.whatif import report
from apportion.adapters.whatif.calibration import calibrate, document
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.history import Entry, History, Pace, Reader
from apportion.adapters.whatif.playing import Change, Play
from apportion.core.decisions import CycleBatch
from apportion.core.envelope import Record
from apportion.core.events import MemberGranted
from apportion.core.state import schema
from tests.projections.history import simulated
from tests.simulation.worlds import Setting
from tests.whatif.past import again, cut, lives, past_of, played_logs, stored

STORM = Setting(2, nodes=4, hours=5, largest=32, demand_milli=2_500)
PASTS = [
    STORM,
    Setting(5, nodes=3, hours=4, gpus_per_node=4, largest=4, cycle_ms=20_000),
    Setting(6, nodes=3, hours=5, faults=ROUGH, time_source="stored", idle_hold_ms=300_000),
]


def name(setting: Setting) -> str:
    return f"seed{setting.seed}"


@pytest.mark.parametrize("part", [0.0, 0.4], ids=["whole", "rest"])
@pytest.mark.parametrize("setting", PASTS, ids=name)
def test_nothing_changed_is_history_decision_for_decision(setting: Setting, part: float) -> None:
    past = past_of(played_logs(setting), part)

    played, found = again(past)

    assert len(past.history.cycles) == played.cycles > 100
    assert played.differing == 0, played.first_difference
    assert played.extra_cycles == played.world.remade_runs == 0
    assert found.moved == []
    assert found.before.accounts == found.after.accounts
    assert found.before.idle_gpu_us == found.after.idle_gpu_us
    assert found.assumed.by_reason == found.assumed.refusals == {}


def test_a_past_with_services_is_history_too() -> None:
    past = past_of(simulated(3, hours=8), 0.2)

    played, _found = again(past)

    assert played.differing == 0, played.first_difference


@pytest.mark.parametrize("setting", PASTS[:2], ids=name)
def test_an_event_that_matters_to_nobody_moves_nobody(setting: Setting) -> None:
    """From the first record on every path for changed worlds is taken, and every run is still as it was."""
    past = past_of(played_logs(setting), 0.2)
    event = MemberGranted(budget="itp", member="nobody")
    change = Change((stated(past.history.from_ms, OPERATOR, event, "what-if.nobody"),))
    batches: list[CycleBatch] = []

    played = Play(past.history, Needs(past.history.recorder), change, batches.append).run()

    assert played.world.deviated
    assert played.world.remade_runs == 0
    assert lives(batches) == lives(stored(past.logs))


def test_beats_thinned_to_what_a_timeout_needs_move_nobody() -> None:
    past = past_of(played_logs(PASTS[0]), 0.2)
    timeout_ms = int(past.core().state.pool.heartbeat_timeout_ms[0])
    thin = past.history.beats.thinned(timeout_ms // 3)
    assert len(thin) < len(past.history.beats)
    all_of_them, past.history.beats = past.history.beats, thin
    batches: list[CycleBatch] = []
    try:
        Play(past.history, Needs(past.history.recorder), watch=batches.append).run()
    finally:
        past.history.beats = all_of_them

    assert lives(batches) == lives(stored(past.logs))


@pytest.mark.parametrize(
    ("gaps_ms", "pace"),
    [
        ([60_000, 120_000] * 20, Pace(0, 60_000)),
        ([*[60_000] * 50, 59_999, *[60_000] * 50], Pace(59_999, 60_000)),
        ([60_000, 61_000, 59_999] * 20, Pace(1_000, 0)),
    ],
    ids=["grid", "begun anew", "none"],
)
def test_a_grid_of_ticks_is_seen_also_where_it_was_begun_anew(gaps_ms: list[int], pace: Pace) -> None:
    times_ms = list(accumulate(gaps_ms, initial=600_000))
    ticks = [Entry(seq, time_ms, "clock.tick", "", "", b"") for seq, time_ms in enumerate(times_ms)]

    assert History(b"", 0, 0, True, entries=ticks).pace() == pace


@pytest.mark.parametrize("setting", PASTS[:2], ids=name)
def test_lists_of_runs_that_say_the_same_are_not_needed_so_often(setting: Setting) -> None:
    core, rest = cut(played_logs(setting), 0.2)
    reader = Reader(core, apart_ms=80_000)
    reader.take([_listing(record) for record in rest.records], rest.batches)
    thin, every = reader.finish(), Reader(core)
    every.take([_listing(record) for record in rest.records], rest.batches)
    batches: list[CycleBatch] = []

    Play(thin, Needs(thin.recorder), watch=batches.append).run()

    assert len(thin.entries) < len(every.finish().entries)
    assert lives(batches) == lives(stored(rest))


def _listing(record: Record) -> Record:
    """Let a heartbeat that lists nothing say so: agents of real nodes always list."""
    plain = record.subject.endswith("node.heartbeat") and b'"runs"' not in record.body and b'"gpus_down"' not in record.body
    return record._replace(body=record.body.replace(b'"busy_milli"', b'"gpus_down":[],"busy_milli"')) if plain else record


def test_where_nobody_waits_the_model_alone_comes_close_to_every_end() -> None:
    setting = Setting(4, nodes=6, hours=5, demand_milli=300, largest=8, habits=CALM, rates=QUIET)
    past = past_of(played_logs(setting))

    played, found = again(past, remake_all=True)

    ends = {name: life.end_ms for name, life in found.before.lives.items() if life.end_ms >= 0}
    assert len(ends) > 20
    assert played.world.remade_runs == found.after.total.starts
    late = [abs(found.after.lives[name].end_ms - end_ms) for name, end_ms in ends.items() if found.after.lives[name].end_ms >= 0]
    assert len(late) >= len(ends) - 1
    assert max(late) <= 120_000, "start-up within half a minute, cycles of a minute"


def test_the_model_alone_gives_each_budget_about_what_history_gave() -> None:
    past = past_of(played_logs(STORM), 0.1)

    _played, found = again(past, remake_all=True)

    was, now = found.before.total, found.after.total
    assert now.starts > 20
    assert abs(now.funded_gpu_us + now.unfunded_gpu_us - was.funded_gpu_us - was.unfunded_gpu_us) < was.funded_gpu_us // 8
    assert found.after.supply_gpu_us == found.before.supply_gpu_us


@pytest.mark.parametrize("setting", PASTS[:2], ids=name)
def test_what_is_measured_of_decisions_is_what_the_ledger_of_the_core_says(setting: Setting) -> None:
    """The oracle keeps accounts of its own, double entry."""
    logs = played_logs(setting)
    past = past_of(logs, 0.3)
    start = past.core()
    end, _rest = cut(logs, 1.0)
    measured = past.before
    table = end.state.budget

    for path, account in measured.accounts.items():
        row, first = table.row_of[f"h100:{path}"], start.state.budget.row_of[f"h100:{path}"]
        open_runs = [r for r in range(end.state.run.used) if end.state.run.state[r] and end.state.run.budget[r] == row]
        assert all(end.state.run.state[r] != schema.ENDED for r in open_runs)
        after_ms = past.history.to_ms - end.state.counters.accrued_ms
        tail = [int(end.state.run.gpus_milli[r]) * after_ms for r in open_runs]
        paid = [int(end.state.run.payer[r]) == schema.PAYER_BUDGET for r in open_runs]
        funded = int(table.charged_us[row]) - int(start.state.budget.charged_us[first])
        unfunded = int(table.unfunded_us[row]) - int(start.state.budget.unfunded_us[first])
        assert account.funded_gpu_us == funded + sum(amount for amount, by in zip(tail, paid, strict=True) if by)
        assert account.unfunded_gpu_us == unfunded + sum(amount for amount, by in zip(tail, paid, strict=True) if not by)


def test_a_calibration_says_all_three() -> None:
    past = past_of(played_logs(STORM), 0.1)

    found = calibrate(past.history, past.before)

    assert found.exact.differing == 0
    assert found.held_back.end_ms, "runs ended in the part held back"
    assert max(abs(error) for error in found.held_back.end_ms) <= 300_000
    said = "\n".join(report.calibration(found))
    assert f"{found.exact.cycles:,} of {found.exact.cycles:,} cycles" in said
    assert document(found)["nothing_changed"]["differing"] == 0
