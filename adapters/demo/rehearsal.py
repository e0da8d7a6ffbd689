"""A day of a small cluster with much trouble, played in memory for the machine code of the kernels alone.

Decides which kernels are compiled before a demo or ``up`` starts its processes: those that a play of the demo calls, live and when
it is derived again; with ``plans`` those of the rolling plan too. A pure function of nothing: what was played is forgotten. As a
program it is what ``processes.compiling`` starts: it fills the cache of this build, and ends with the memory of the compiler.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from apportion.adapters.processes.build import keep_kernels_apart
from apportion.adapters.processes.compiling import compiled_once
from apportion.adapters.processes.home import Home

if TYPE_CHECKING:
    from apportion.adapters.simulation.job import Job
    from apportion.adapters.simulation.world import WorldOptions

NODES = 16  # so many that some are drained while a gang waits
DAY_MS = 86_400_000
PLANNED_MS = DAY_MS // 4


def rehearse(*, plans: bool) -> None:
    """Play the day and derive it again; with ``plans`` also the morning of a realtime service."""
    from apportion.adapters.demo.setting import DemoOptions, story
    from apportion.adapters.service.warming import warm_horizon
    from apportion.adapters.simulation.cluster import Layout
    from apportion.adapters.simulation.trouble import STORMY

    nowhere = Home.of()  # no play in memory looks at it
    jobs, world = story(DemoOptions(nowhere, length_ms=DAY_MS, layout=Layout(nodes=NODES)))
    _play(jobs, replace(world, rates=STORMY))
    if plans:
        warm_horizon()
        _play(*story(DemoOptions(nowhere, length_ms=PLANNED_MS, realtime=True)))


def _play(jobs: list[Job], options: WorldOptions) -> None:
    from apportion.adapters.simulation.driver import Simulation, replay
    from apportion.adapters.simulation.world import World

    played = Simulation(World(jobs, options), every_interval=True)
    played.run(options.start_ms + options.length_ms)
    again = replay(played.logs)
    again.snapshot()


def main() -> int:
    """Rehearse, unless another process has for this build; return the exit code."""
    parser = argparse.ArgumentParser(prog="apportion.adapters.demo.rehearsal")
    parser.add_argument("--plans", action="store_true")
    plans = parser.parse_args().plans
    keep_kernels_apart()
    with compiled_once(plans=plans) as needed:
        if needed:
            rehearse(plans=plans)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
