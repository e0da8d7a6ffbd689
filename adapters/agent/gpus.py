"""Where the GPUs of a node come from: NVML, or simulation.

``GpuSource`` is what the agent asks; ``SimulatedGpus`` answers for GPUs that do not exist. A simulated GPU is as busy
as the processes that were given it are on the CPU, so that parking shows as parking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from apportion.adapters.agent.sessions import cpu_ticks
from apportion.core.units import MILLI

IDLE_BELOW_MILLI = 10  # of one simulated GPU


class Reading(NamedTuple):
    """The state of a node's GPUs now."""

    gpus_down: tuple[int, ...]
    busy_milli: int
    memory_mib: int
    watts: int
    idle: tuple[int, ...] = ()  # sessions that have done no work on their GPUs since the reading before


class Held(NamedTuple):
    """What the processes of one run hold here."""

    milli: int
    gpus: tuple[int, ...]


class GpuSource(Protocol):
    """The GPUs of one node; indexes are those the node joined with."""

    @property
    def kind(self) -> str:
        """Return ``nvml`` or ``simulated``."""
        ...

    @property
    def count(self) -> int:
        """Return how many GPUs the node offers."""
        ...

    @property
    def memory_mib_each(self) -> int:
        """Return the memory of one GPU; 0 when not known."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """Return what identifies each GPU over restarts, by index."""
        ...

    def visible(self, gpus: tuple[int, ...]) -> str:
        """Return the value of ``CUDA_VISIBLE_DEVICES`` that means these GPUs."""
        ...

    def read(self, sessions: Mapping[int, Held]) -> Reading:
        """Read the GPUs. ``sessions`` maps the session id of each run's processes to what they hold."""
        ...


class SimulatedGpus:
    """``count`` GPUs that exist on paper only."""

    def __init__(self, count: int) -> None:
        """Offer ``count`` GPUs, 1 to 72."""
        self._count = count
        self._cpu_ticks: dict[int, int] = {}
        self._read_at = time.monotonic()

    @property
    def kind(self) -> str:
        """Return ``simulated``."""
        return "simulated"

    @property
    def count(self) -> int:
        """Return how many GPUs are simulated."""
        return self._count

    @property
    def memory_mib_each(self) -> int:
        """Return 0: there is none."""
        return 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Return made-up names."""
        return tuple(f"sim-{index}" for index in range(self._count))

    def visible(self, gpus: tuple[int, ...]) -> str:
        """Return the indexes, comma separated."""
        return ",".join(str(gpu) for gpu in gpus)

    def read(self, sessions: Mapping[int, Held]) -> Reading:
        """Return each run's share of one CPU since the last reading, times its GPUs; idle is who used less than a hundredth."""
        now = time.monotonic()
        elapsed_ticks = (now - self._read_at) * os.sysconf("SC_CLK_TCK")
        ticks = cpu_ticks(sessions)
        busy, idle = 0, list[int]()
        for session, used in ticks.items():
            spent = max(0, used - self._cpu_ticks.get(session, 0))
            share_milli = MILLI if elapsed_ticks <= 0 else min(MILLI, int(spent * MILLI / elapsed_ticks))
            busy += sessions[session].milli * share_milli // MILLI
            if session in self._cpu_ticks and share_milli < IDLE_BELOW_MILLI:
                idle.append(session)
        self._cpu_ticks, self._read_at = ticks, now
        return Reading(gpus_down=(), busy_milli=busy, memory_mib=0, watts=0, idle=tuple(idle))
