"""One policy's play: the simulated world, the production core, and the measures that watch. Plays run in processes side by side.

A pure function of story and policy; equal stories give equal outcomes. What is measured is counted from ``WARM_MS`` on, when a
play is long enough for that, because an empty cluster serves everybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context

import msgspec

from apportion.adapters.comparing.measures import Shares
from apportion.adapters.comparing.story import Story
from apportion.adapters.comparing.timeline import Timeline
from apportion.adapters.comparing.toll import Toll
from apportion.adapters.comparing.waits import Quantile, Waits
from apportion.adapters.processes.build import keep_kernels_apart
from apportion.adapters.simulation.cluster import Policy
from apportion.adapters.simulation.driver import Passing, Simulation
from apportion.adapters.simulation.world import World
from apportion.core.decisions import CycleBatch, RunPlaced
from apportion.core.errors import ApportionError
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

POLICIES: tuple[Policy, ...] = ("fair", "fifo", "priority", "fair_tree", "drf")
WARM_MS = MS_PER_DAY
QUANTUM_MS = MS_PER_HOUR
RESTART_MS = 75_000  # mean of what the world's people need to load a checkpoint
INTERVALS_PER_DAY = 4
PERCENTS = (50, 90, 99)
WAIT_BOUNDS_MS = [60_000 * minutes for minutes in (1, 2, 5, 10, 20, 30, 60, 90, 120, 180, 240, 360, 480, 720, 960, 1_440, 2_160)]
WAIT_BOUNDS_MS += [MS_PER_DAY * days for days in (2, 3, 4, 5, 6, 7, 10, 14, 21, 30)]


class PlayerDied(ApportionError):
    """A process of a play is gone, and with it what it had played."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one play. Parts are in per cent, as floats: nothing here enters an event."""

    policy: str
    program_err_pct: float
    leaf_err_pct: float
    misplaced_pct: float  # of all GPU time delivered: what budgets got above their due, in sum
    occupancy_pct: float
    lost_work_pct: float
    preemptions: int
    preemptions_per_1000_gpu_h: float
    alternations: int
    runs_preempted_over_3: int
    runs_preempted_over_3_pct: float
    jobs: int
    started: int
    runs: int
    waits: list[Quantile]
    started_within_ppm: list[int]  # per WAIT_BOUNDS_MS
    got_ppm: dict[str, list[int]]  # per interval
    due_ppm: dict[str, list[int]]
    events: int
    cycles: int
    complaints: list[str]


def window(story: Story) -> tuple[int, int]:
    """Return from when to when is counted."""
    start_ms, length_ms = story.world.start_ms, story.world.length_ms
    return start_ms + (WARM_MS if length_ms >= 2 * WARM_MS else 0), start_ms + length_ms


def misplaced_pct(shares: Shares) -> float:
    """Return the part of the GPU time that went to a budget above its due, and so was missing elsewhere."""
    above = sum(max(0, int(shares.got[row]) - int(shares.due[row])) for row in shares.leaves)
    return 100 * above / max(1, int(shares.due[0]))


def play(story: Story, policy: Policy) -> Outcome:
    """Play the story under one policy."""
    world_options = story.world
    from_ms, to_ms = window(story)
    programs = [path for path, _ppm in story.tree if path.count("/") == 1]
    shares, toll = Shares(story.tree, from_ms, to_ms), Toll(from_ms, to_ms, QUANTUM_MS, RESTART_MS)
    waits = Waits(from_ms, to_ms)
    intervals = max(4, world_options.length_ms * INTERVALS_PER_DAY // MS_PER_DAY)
    timeline = Timeline(story.tree, world_options.start_ms, to_ms, intervals)
    runs = 0

    def watch(batch: CycleBatch) -> None:
        nonlocal runs
        runs += sum(isinstance(decision, RunPlaced) for decision in batch.decisions)
        shares.take(None, batch)
        toll.take(None, batch)
        waits.take(batch)
        timeline.take(batch)

    world = World(story.jobs, replace(world_options, layout=world_options.layout._replace(policy=policy)))
    passing = Passing()
    simulation = Simulation(world, logs=passing, watch=watch, every_interval=True)
    simulation.run(to_ms)
    over = sum(count > 3 for count in toll.ran.values())
    return Outcome(
        policy=policy,
        program_err_pct=shares.worst_error_pct(programs),
        leaf_err_pct=shares.worst_error_pct(shares.leaf_paths()),
        misplaced_pct=misplaced_pct(shares),
        occupancy_pct=toll.occupancy_pct,
        lost_work_pct=toll.lost_pct,
        preemptions=toll.preemptions,
        preemptions_per_1000_gpu_h=toll.preemptions_per_1000_gpu_h,
        alternations=toll.alternations,
        runs_preempted_over_3=over,
        runs_preempted_over_3_pct=toll.often_pct,
        jobs=world.submitted,
        started=len(toll.ran),
        runs=runs,
        waits=[waits.quantile(percent) for percent in PERCENTS],
        started_within_ppm=waits.within(WAIT_BOUNDS_MS),
        got_ppm=timeline.got_ppm,
        due_ppm=timeline.due_ppm,
        events=passing.events,
        cycles=simulation.core.cycle,
        complaints=world.complaints,
    )


def play_all(story: Story, policies: Sequence[Policy], told: Callable[[Outcome], None], workers: int = 0) -> list[Outcome]:
    """Play the story under each policy, as many at once as there are processors; ``told`` is called as each is done."""
    at_once = min(len(policies), workers or os.cpu_count() or 1)
    done: dict[str, Outcome] = {}
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=keep_kernels_apart) as pool:
        try:
            for future in as_completed([pool.submit(play, story, policy) for policy in policies]):
                outcome = future.result()
                done[outcome.policy] = outcome
                told(outcome)
        except BrokenProcessPool as error:
            left = ", ".join(policy for policy in policies if policy not in done)
            raise PlayerDied(f"a process that played {left} was ended from outside, or ran out of memory") from error
    return [done[policy] for policy in policies]
