"""Which processes belong to a run, from one reading of /proc: the members of its command's session.

Pure readers of the process table. A session's number is not given out anew while it has members, so with the start time
of its leader it names one run's processes and nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from apportion.adapters.agent import shim
from apportion.adapters.agent.rundir import Started


class Process(NamedTuple):
    """One living process."""

    pid: int
    session: int
    start: int  # clock ticks since boot
    cpu_ticks: int


def processes() -> Iterator[Process]:
    """Yield the living processes of this machine; zombies are not."""
    for pid, fields in shim.living():
        yield Process(pid, int(fields[3]), int(fields[19]), int(fields[11]) + int(fields[12]))


def session_members(started: Started) -> list[tuple[int, int]]:
    """Return ``(pid, start ticks)`` of the living processes in the session of this command, and of no later one."""
    if started.boot != shim.boot_id() or shim.start_ticks(started.pid) not in (0, started.start):
        return []  # the number belongs to somebody else now
    return [(process.pid, process.start) for process in processes() if process.session == started.pid]


def cpu_ticks(sessions: Iterable[int]) -> dict[int, int]:
    """Return the CPU time used so far by the living processes of each session, in clock ticks."""
    ticks = dict.fromkeys(sessions, 0)
    for process in processes() if ticks else ():
        if process.session in ticks:
            ticks[process.session] += process.cpu_ticks
    return ticks
