"""What a what-if is worth, measured on the range itself, in three steps.

1. *Nothing changed*: the range is played again as it was; every cycle must decide what history decided. One that does not is
   named. Out of reach where the heartbeats were thinned (``reading.ALL_BEATS``): records then have other numbers, and of plans of
   preemption that are equal in all else the core takes the one whose victims came latest, counted in records.
2. *The model alone*: the range is played again with nothing changed and no run taken from history, so that every difference is
   the model's error. What two worlds differ by less than that is not a finding.
3. *Held back*: the model is made of the first part of the range and asked about the rest: when recorded runs ended, given their
   place and their demand; and how much jobs needed, as the rule for censored needs would have said.

Pure functions of the history; they change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apportion.adapters.whatif.demand import BY_ITSELF, RUNNING, WAITING, Attempt, Demand, Needs, Recorder
from apportion.adapters.whatif.difference import Difference, budgets_of, difference
from apportion.adapters.whatif.history import History
from apportion.adapters.whatif.measures import Measured, Measures
from apportion.adapters.whatif.playing import OnProgress, Play, Played
from apportion.core.engine import Core
from apportion.core.units import NEVER_MS, gpu_us

HELD_BACK_PPM = 700_000  # the model is made of the range up to here
PERCENTS = (50, 90, 99)


@dataclass
class HeldBack:
    """Errors on what was held back. ``end_ms``: predicted less recorded end of runs, sorted; needs: predicted and true, per job."""

    split_ms: int
    end_ms: list[int]
    needs_gpu_us: list[tuple[int, int]]
    beyond: int  # jobs for which the rule knows no need


@dataclass
class Calibration:
    """All three steps."""

    exact: Played
    alone: Difference
    held_back: HeldBack


def calibrate(history: History, before: Measured, progress: OnProgress | None = None) -> Calibration:
    """Measure the what-if of a range."""
    exact = Play(history, Needs(history.recorder), compare=True).run(progress)
    needs = Needs(history.recorder)
    measures = Measures(Core.from_snapshot(history.snapshot), history.to_ms, before.books_ms)
    played = Play(history, needs, watch=measures.take, remake_all=True).run(progress)
    return Calibration(exact, difference(history, before, measures.finish(), played, needs), held_back(history))


def held_back(history: History) -> HeldBack:
    """Make the model of the first part of the range, and ask it about the rest."""
    split_ms = history.from_ms + (history.to_ms - history.from_ms) * HELD_BACK_PPM // 1_000_000
    recorder = history.recorder
    needs = Needs(_up_to(recorder, split_ms))
    lags, errors = needs.lags, list[int]()
    asked_for: list[tuple[int, int]] = []
    beyond = 0
    for key, attempt in recorder.attempts.items():
        workload = key.rpartition("#")[0]
        if attempt.placed_ms < split_ms or attempt.outcome not in BY_ITSELF or not attempt.started_ms:
            continue
        progress_ms = recorder.progress_ms(attempt, attempt.end_ms)
        restart_ms = lags.restart_ms if attempt.resume_ms else 0
        errors.append(
            attempt.placed_ms + needs.startup_ms(workload) + restart_ms + progress_ms - attempt.resume_ms - attempt.end_ms
        )
        asked, demand = recorder.asked.get(workload), recorder.demand[workload]
        if asked is not None and not asked.service and not demand.censored and needs.recorder.demand[workload].seen_ms == 0:
            guess_ms = needs.guess(workload, asked, 0)
            if guess_ms >= NEVER_MS:
                beyond += 1
            else:
                asked_for.append((gpu_us(asked.gpus_milli, guess_ms), gpu_us(asked.gpus_milli, progress_ms)))
    return HeldBack(split_ms, sorted(errors), asked_for, beyond)


def _up_to(recorder: Recorder, split_ms: int) -> Recorder:
    """Return what the recorder knew at an instant."""
    known = Recorder()
    known.asked = recorder.asked
    known.demand = {workload: Demand() for workload in recorder.demand}
    for key, attempt in recorder.attempts.items():
        if attempt.placed_ms > split_ms:
            continue
        demand = known.demand[key.rpartition("#")[0]]
        demand.censored = RUNNING if demand.censored == WAITING else demand.censored
        known.attempts[key] = attempt
        if attempt.started_ms and attempt.started_ms <= split_ms:
            known.note_start(attempt)
        until_ms = min(attempt.end_ms, split_ms) if attempt.closed_ms else split_ms
        progress_ms = recorder.progress_ms(attempt, until_ms)
        demand.seen_ms = max(demand.seen_ms, progress_ms)
        _ended(recorder, known, key, attempt, split_ms)
    return known


def _ended(recorder: Recorder, known: Recorder, key: str, attempt: Attempt, split_ms: int) -> None:
    workload = key.rpartition("#")[0]
    demand, whole = known.demand[workload], recorder.demand[workload]
    if attempt.closed_ms and attempt.closed_ms <= split_ms and attempt.outcome in BY_ITSELF:
        demand.endings.append(whole.endings[len(demand.endings)])
        if not whole.censored and len(demand.endings) == len(whole.endings):
            demand.censored = ""


def quantile(values: list[int], percent: int) -> int:
    """Return the value that so many per cent of the sorted values do not exceed; 0 of none."""
    return values[min(len(values) - 1, len(values) * percent // 100)] if values else 0


def document(found: Calibration) -> dict[str, Any]:
    """Return everything measured."""
    exact, held = found.exact, found.held_back
    sizes = sorted(abs(error) for error in held.end_ms)
    predicted, true = (sum(pair[side] for pair in held.needs_gpu_us) for side in (0, 1))
    first = exact.first_difference
    return {
        "nothing_changed": {
            "cycles": exact.cycles, "differing": exact.differing, "first_difference_seq": first[0] if first else None,
        },
        "model_alone": {
            "gpu_us": {
                name: {"history": was.funded_gpu_us + was.unfunded_gpu_us, "whatif": now.funded_gpu_us + now.unfunded_gpu_us}
                for name, was, now in budgets_of(found.alone)
            },
            "starts": {"history": found.alone.before.total.starts, "whatif": found.alone.after.total.starts},
            "worst_budget_ppm": worst_ppm(found.alone),
        },
        "held_back": {
            "split_ms": held.split_ms, "runs": len(held.end_ms),
            "end_error_ms": {
                "median_signed": quantile(held.end_ms, 50), **{f"p{percent}": quantile(sizes, percent) for percent in PERCENTS}
            },
            "needs": {"jobs": len(held.needs_gpu_us), "predicted_gpu_us": predicted, "true_gpu_us": true, "beyond": held.beyond},
        },
    }  # fmt: skip


def worst_ppm(found: Difference) -> int:
    """Return the largest change of a budget's GPU time, in parts per million of all GPU time that budgets were given."""
    whole = max(1, found.before.total.funded_gpu_us + found.before.total.unfunded_gpu_us)
    moved = [
        abs(now.funded_gpu_us + now.unfunded_gpu_us - was.funded_gpu_us - was.unfunded_gpu_us)
        for _name, was, now in budgets_of(found)
    ]
    return max(moved, default=0) * 1_000_000 // whole
