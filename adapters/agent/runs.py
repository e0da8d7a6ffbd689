"""The processes of one node's runs: started under supervisors, adopted, watched, stopped.

``Runs`` turns what is in the run folders and in the process table into happenings (started, progressed, ended); the
agent turns those into reports. It keeps nothing that a restart would miss: every question is answered
from a run's folder, its supervisor, and the start time of its process.

It must never start a run on a GPU that another run here still holds, and never signal a process because of its number
alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from apportion.adapters.agent import shim
from apportion.adapters.agent.gpus import Held
from apportion.adapters.agent.rundir import Exit, RunDir, RunSpec, Started
from apportion.adapters.agent.sessions import session_members
from apportion.core.units import MILLI

SPAWN_TRIES = 3
SOON_S = 0.1  # look again at what has no descriptor to wait on
PROGRESS_S = 1.0


class Happening(NamedTuple):
    """Something that became true of a run."""

    key: str
    what: Literal["started", "progressed", "ended"]
    number: int = 0  # pid, or milliseconds of progress
    exit: Exit | None = None


class LocalRun:
    """One run that lives here, or whose end was not told yet."""

    def __init__(self, folder: RunDir, spec: RunSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.supervisor: subprocess.Popen[bytes] | None = None  # when this process started it
        self.ready_fd = -1  # reads as closed when the start is decided
        self.watch_fd = -1  # pidfd of the supervisor, or of the command when there is no supervisor
        self.tries = 0
        self.started: Started | None = None
        reported = folder.reported()
        self.told_started = reported.started
        self.progress_ms = max(spec.resume_from_ms, reported.progress_ms)
        self.grace_ms: int | None = None  # wanted stop
        self.told_grace_ms: int | None = None  # what the supervisor, or we in its place, act on
        self.kill_at = 0.0
        self.over = False

    @property
    def milli(self) -> int:
        """Return what the run holds on this node."""
        return len(self.spec.gpus) * self.spec.milli_each


class Runs:
    """All runs of one node that have processes or an untold end."""

    def __init__(self, agent_dir: Path, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` whenever ``tend`` should be called; needs a running event loop."""
        self._dir = agent_dir
        self._on_change = on_change
        self._runs: dict[str, LocalRun] = {}
        self._loop = asyncio.get_running_loop()

    def __contains__(self, key: str) -> bool:
        return key in self._runs

    def refs(self) -> list[str]:
        """Return the runs that live here or whose end was not settled yet."""
        return list(self._runs)

    def spec(self, key: str) -> RunSpec:
        """Return what was asked for the run."""
        return self._runs[key].spec

    def over(self, key: str) -> bool:
        """Tell whether the run's processes are known to be gone."""
        return self._runs[key].over

    def sessions(self) -> dict[int, Held]:
        """Return the session of each living run's processes and what it holds."""
        return {
            run.started.pid: Held(run.milli, run.spec.gpus)
            for run in self._runs.values()
            if run.started is not None and not run.over
        }

    def resting(self, idle: tuple[int, ...]) -> set[str]:
        """Return the runs that do no work here: their session is among ``idle``, or their part here is over."""
        return {
            key for key, run in self._runs.items() if run.over or (run.started is not None and run.started.pid in idle)
        }  # fmt: skip

    def holders(self, gpus: tuple[int, ...], milli_each: int) -> list[str]:
        """Return the runs here that must be gone before ``milli_each`` of each of these GPUs is free."""
        living = [run for run in self._runs.values() if not run.over]
        blocking: list[str] = []
        for gpu in gpus:
            on_it = [run for run in living if gpu in run.spec.gpus]
            if sum(run.spec.milli_each for run in on_it) + milli_each > MILLI:
                blocking.extend(run.folder.key for run in on_it)
        return list(dict.fromkeys(blocking))

    def start(self, spec: RunSpec) -> None:
        """Take on a run: its folder first, then its supervisor. Harmless for a run that was taken on before."""
        folder = RunDir(self._dir, spec.workload, spec.run)
        known = folder.spec()
        if known is None:
            folder.create(spec)
        self._take(folder, known or spec)

    def settle(self, spec: RunSpec, exit_: Exit) -> None:
        """Take on a run that will not be started: its folder and its end at once."""
        folder = RunDir(self._dir, spec.workload, spec.run)
        folder.create(spec)
        folder.write_exit(exit_)
        self._take(folder, spec)

    def adopt(self, folder: RunDir, spec: RunSpec) -> None:
        """Take charge again of a run whose folder exists."""
        self._take(folder, spec)

    def stop(self, key: str, grace_ms: int) -> None:
        """Want the run stopped: SIGTERM now, SIGKILL after the grace. A later, shorter grace brings the end nearer."""
        run = self._runs[key]
        if run.grace_ms is None or grace_ms < run.grace_ms:
            run.grace_ms = grace_ms
            self._on_change()

    def forget(self, key: str) -> None:
        """Drop a run that is over and settled; its folder stays, with its output."""
        run = self._runs.pop(key)
        self._unwatch(run)

    def close(self) -> None:
        """Let go of every run without touching its processes."""
        for run in self._runs.values():
            self._unwatch(run)
        self._runs.clear()

    def tend(self) -> tuple[list[Happening], float]:
        """Look at every run and act on wanted stops; return what happened and in how many seconds to look again."""
        happenings: list[Happening] = []
        soonest = 3_600.0
        for run in self._runs.values():
            if not run.over:
                soonest = min(soonest, self._tend_one(run, happenings))
        return happenings, soonest

    # -- one run -------------------------------------------------------------------------------------------------------

    def _take(self, folder: RunDir, spec: RunSpec) -> None:
        if folder.key in self._runs:
            return
        run = LocalRun(folder, spec)
        self._runs[folder.key] = run
        if folder.started() is None and folder.exit() is None and not folder.supervised():
            self._spawn(run)

    def _spawn(self, run: LocalRun) -> None:
        run.tries += 1
        self._unwatch(run)
        run.supervisor, run.ready_fd = run.folder.spawn()
        self._loop.add_reader(run.ready_fd, self._on_ready, run)
        self._watch(run, run.supervisor.pid)

    def _on_ready(self, run: LocalRun) -> None:
        self._loop.remove_reader(run.ready_fd)
        os.close(run.ready_fd)
        run.ready_fd = -1
        self._on_change()

    def _tend_one(self, run: LocalRun, happenings: list[Happening]) -> float:
        exited = run.supervisor is not None and run.supervisor.poll() is not None
        supervised = (not exited and run.supervisor is not None) or run.folder.supervised()
        run.started = run.started or run.folder.started()
        ended = run.folder.exit()  # read after the supervisor was looked at: it writes this last
        if ended is None and run.started is not None and not supervised:
            ended = self._tend_orphan(run, run.started)
        if ended is None and run.started is None and not supervised:
            ended = self._try_again(run)
        if ended is not None:
            if run.started is not None and not ended.refused:
                self._tell_started(run, run.started, happenings)
            self._progress(run, happenings)
            self._end(run)
            happenings.append(Happening(run.folder.key, "ended", exit=ended))
            return 3_600.0
        if run.started is None:
            return SOON_S
        if run.ready_fd != -1:  # forked, but it is not known yet whether the command could be started
            return SOON_S
        if run.watch_fd == -1:
            self._watch(run, run.started.shim_pid if supervised else run.started.pid)
        self._tell_started(run, run.started, happenings)
        self._progress(run, happenings)
        return self._tend_stop(run, supervised)

    def _try_again(self, run: LocalRun) -> Exit | None:
        """Start another supervisor after one that ended without a word; after some tries, give the run up."""
        if run.tries < SPAWN_TRIES:
            self._spawn(run)
            return None
        detail = f"its supervisor ended {run.tries} times at start: {run.folder.shim_errors()}"
        run.folder.write_exit(Exit(refused=detail))
        return run.folder.exit()

    def _tend_orphan(self, run: LocalRun, started: Started) -> Exit | None:
        """Look after a command whose supervisor was killed; return its end when it is gone."""
        if run.watch_fd != -1 and run.supervisor is not None:  # that was the supervisor's
            self._unwatch(run)
            run.supervisor = None
            self._watch(run, started.pid)
        if started.alive:
            return None
        for pid, start in session_members(started):  # without their leader they hold GPUs for nobody
            shim.signal_verified(pid, start, signal.SIGKILL)
        if session_members(started):
            return None
        if run.told_grace_ms is not None:
            detail = "stopped as ordered; its exit status went with its supervisor"
            run.folder.write_exit(Exit(signalled=True, killed=True, detail=detail))
        else:
            detail = "the process is gone and its exit status with it: its supervisor was killed, or the node restarted"
            run.folder.write_exit(Exit(lost=detail))
        return run.folder.exit()

    def _tend_stop(self, run: LocalRun, supervised: bool) -> float:
        """Pass a wanted stop on, or carry it out where no supervisor lives; return when to look again."""
        if run.grace_ms is None:
            return PROGRESS_S
        now = time.monotonic()
        if run.told_grace_ms is None or run.grace_ms < run.told_grace_ms:
            if supervised and not run.folder.order_stop(run.grace_ms):
                return SOON_S
            kill_at = now + run.grace_ms / 1_000
            run.kill_at = kill_at if run.told_grace_ms is None else min(run.kill_at, kill_at)
            if not supervised and run.started is not None:
                self._signal_session(run.started, signal.SIGTERM)
            run.told_grace_ms = run.grace_ms
        if supervised or run.started is None:
            return PROGRESS_S
        if now >= run.kill_at:
            self._signal_session(run.started, signal.SIGKILL)
            return PROGRESS_S
        return min(PROGRESS_S, run.kill_at - now + 0.001)

    def _signal_session(self, started: Started, how: signal.Signals) -> None:
        for pid, start in session_members(started):
            shim.signal_verified(pid, start, how)

    def _tell_started(self, run: LocalRun, started: Started, happenings: list[Happening]) -> None:
        if not run.told_started:
            run.told_started = True
            happenings.append(Happening(run.folder.key, "started", number=started.pid))

    def _progress(self, run: LocalRun, happenings: list[Happening]) -> None:
        progress_ms = run.folder.progress_ms()
        if progress_ms > run.progress_ms:
            run.progress_ms = progress_ms
            happenings.append(Happening(run.folder.key, "progressed", number=progress_ms))

    def _end(self, run: LocalRun) -> None:
        run.over = True
        self._unwatch(run)
        if run.supervisor is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.supervisor.wait(1.0)  # it has written its last word; collect it

    def _watch(self, run: LocalRun, pid: int) -> None:
        """Call ``on_change`` when the process ends. Where it is gone already, ``tend`` will find out soon."""
        try:
            run.watch_fd = os.pidfd_open(pid)
        except OSError:
            self._loop.call_later(SOON_S, self._on_change)
            return
        self._loop.add_reader(run.watch_fd, self._on_gone, run)

    def _on_gone(self, run: LocalRun) -> None:
        self._loop.remove_reader(run.watch_fd)
        self._on_change()

    def _unwatch(self, run: LocalRun) -> None:
        for descriptor in (run.ready_fd, run.watch_fd):
            if descriptor != -1:
                self._loop.remove_reader(descriptor)
                os.close(descriptor)
        run.ready_fd = run.watch_fd = -1
