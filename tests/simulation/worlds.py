"""Small simulated clusters for tests: a day of short jobs, with every kind of trouble, drained to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from apportion.adapters.simulation.cluster import Layout, TimeSource
from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.driver import Arrive, Simulation
from apportion.adapters.simulation.faults import FaultRates, Faults
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.people import MOODY, Habits
from apportion.adapters.simulation.trouble import Rates
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.decisions import CycleBatch
from tests.core.invariants import check_state
from tests.simulation.checkers import Checker
from tests.simulation.conserving import check_conserving

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
HARSH = Rates(1, 1, 1, 2, 1, 1)


class Setting(NamedTuple):
    """What a small world is like."""

    seed: int
    nodes: int = 3
    hours: int = 8
    gpus_per_node: int = 8
    largest: int = 16
    demand_milli: int = 1_800
    habits: Habits = MOODY
    rates: Rates = HARSH
    faults: FaultRates | None = None
    time_source: TimeSource = "stated"
    cycle_ms: int = MINUTE_MS
    idle_hold_ms: int | None = None  # and then it is demoted
    patience: int = 40  # it must be drained after so many times its hours


def jobs_of(setting: Setting) -> list[Job]:
    """Return short jobs of powers of two, half of them of one GPU, that ask for ``demand_milli`` of the supply."""
    dice = Dice(setting.seed, "jobs")
    wanted = setting.nodes * setting.gpus_per_node * setting.hours * HOUR_MS * setting.demand_milli // 1_000
    found: list[tuple[int, int, int, str]] = []
    while wanted > 0:
        size = 1 if dice.chance(500_000) else 1 << dice.below(setting.largest.bit_length())
        duration_ms = dice.between(2, 60) * MINUTE_MS * (1 if dice.chance(700_000) else 4)
        program = f"cluster{dice.between(1, 10):02d}"
        found.append((dice.below(setting.hours * HOUR_MS), duration_ms, size, program))
        wanted -= size * duration_ms
    found.sort()
    return [
        Job(f"{program}-{number}", submit_ms, duration_ms, size, program)
        for number, (submit_ms, duration_ms, size, program) in enumerate(found, 1)
    ]


def world_of(setting: Setting) -> World:
    """Return the world of a setting."""
    options = WorldOptions(
        seed=setting.seed,
        length_ms=setting.hours * HOUR_MS,
        layout=Layout(
            nodes=setting.nodes,
            gpus_per_node=setting.gpus_per_node,
            idle_hold_ms=setting.idle_hold_ms,
            idle_demotes=setting.idle_hold_ms is not None,
            moves="carry_out",
        ),
        habits=setting.habits,
        rates=setting.rates,
        time_source=setting.time_source,
    )
    return World(jobs_of(setting), options)


class Played(NamedTuple):
    """A simulation that ran to its end, and its checker."""

    simulation: Simulation
    checker: Checker
    drained: bool


def play(setting: Setting, watch: Callable[[Simulation, CycleBatch], None] | None = None) -> Played:
    """Play a setting to its end under all checks; the error of a broken rule carries the setting, hence the seed."""
    try:
        return _play(setting, watch)
    except Exception as error:
        error.add_note(f"to repeat: play({setting})")
        raise


def _play(setting: Setting, watch: Callable[[Simulation, CycleBatch], None] | None) -> Played:
    world = world_of(setting)
    arrive: Arrive | None = Faults(setting.seed, setting.faults) if setting.faults is not None else None
    constant = not setting.rates.replaced_days and arrive is None
    checker = Checker(
        start_ms=world.options.start_ms,
        idle_hold_ms=setting.idle_hold_ms or 0,
        constant_supply_milli=world.options.layout.gpus * 1_000 if constant else 0,
    )
    simulation = Simulation(world, arrive=arrive)

    def see(batch: CycleBatch) -> None:
        checker(batch)
        if batch.cycle % 8 == 0:
            check_state(simulation.core.state)
            check_conserving(simulation.core.state, batch)
        if watch is not None:
            watch(simulation, batch)

    simulation.watch = see
    last_ms = world.options.start_ms + setting.patience * world.options.length_ms
    drained = simulation.run_until_drained(last_ms, setting.cycle_ms)
    check_state(simulation.core.state)
    return Played(simulation, checker, drained)
