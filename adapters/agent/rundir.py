"""The folder of one run on its node: what was asked, what was started, how it ended.

``agents/<node>/<workload>#<run>/``: ``run.json`` (the agent's word to the supervisor), ``stdout``, ``stderr``,
``progress`` (the workload's word), and the supervisor's files described in ``shim``. One writer per file, every file
whole or absent.

A run whose folder exists is never started under another folder: the run number is what makes a decision that is read
twice harmless.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec

from apportion.adapters.agent import shim
from apportion.adapters.agent.orders import run_key
from apportion.core.units import MS_PER_DAY

PROGRESS_TAIL_BYTES = 4_096
MAX_PROGRESS_MS = 366 * MS_PER_DAY
T = TypeVar("T")


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``run.json``: everything the supervisor and a restarted agent need to know of a run."""

    workload: str
    run: int
    node: str
    gpus: tuple[int, ...]
    milli_each: int
    nodes: tuple[str, ...]
    rank: int
    resume_from_ms: int
    grace_ms: int
    event_seq: int
    placed_ms: int
    command: tuple[str, ...]
    env: dict[str, str]
    cwd: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``started.json``: which process the command is. ``start`` and ``boot`` tell it from a later one."""

    pid: int
    start: int
    boot: str
    shim_pid: int

    @property
    def alive(self) -> bool:
        """Tell whether that very process still runs; a recycled pid or another boot is not it."""
        return self.boot == shim.boot_id() and self.start != 0 and shim.start_ticks(self.pid) == self.start


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``exit.json``: the processes are gone. The agent writes it where no supervisor can or ever will."""

    exit_code: int = 0  # negative: ended by that signal
    refused: str = ""  # why the command could not be started
    lost: str = ""  # why nobody knows how it ended
    detail: str = ""
    signalled: bool = False  # SIGTERM was sent while it still ran
    killed: bool = False  # SIGKILL had to be sent
    ran_ms: int = 0


class Reported(msgspec.Struct, kw_only=True):
    """Content of ``reported.json``: what the log has acknowledged. Only saves resending; may be lost."""

    started: bool = False
    ended: bool = False
    progress_ms: int = 0


class RunDir:
    """Access to one run's folder."""

    def __init__(self, agent_dir: Path, workload: str, run: int) -> None:
        self.workload = workload
        self.run = run
        self.key = run_key(workload, run)
        self.path = agent_dir / self.key

    @property
    def exists(self) -> bool:
        """Tell whether this run was taken on here, whatever became of it."""
        return (self.path / "run.json").exists()

    @property
    def progress_path(self) -> Path:
        """The file to which the workload appends lines of milliseconds it could resume from."""
        return self.path / "progress"

    def create(self, spec: RunSpec) -> None:
        """Write ``run.json`` durably. The folder may exist from an attempt that was cut short."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        shim.write_durably(str(self.path / "run.json"), msgspec.json.encode(spec))

    def spec(self) -> RunSpec | None:
        """Return what was asked, or None when the run was not taken on here."""
        return self._read("run.json", RunSpec)

    def started(self) -> Started | None:
        """Return which process was started, or None when none was yet."""
        return self._read("started.json", Started)

    def exit(self) -> Exit | None:
        """Return how it ended, or None."""
        return self._read("exit.json", Exit)

    def write_exit(self, exit_: Exit) -> None:
        """Settle the end of a run that has no supervisor (any more)."""
        shim.write_durably(str(self.path / "exit.json"), msgspec.json.encode(exit_))

    def reported(self) -> Reported:
        """Return which reports of this run the log is known to have."""
        return self._read("reported.json", Reported) or Reported()

    def save_reported(self, reported: Reported) -> None:
        """Keep which reports were acknowledged."""
        temporary = self.path / "reported.json.tmp"
        temporary.write_bytes(msgspec.json.encode(reported))
        temporary.replace(self.path / "reported.json")

    def spawn(self) -> tuple[subprocess.Popen[bytes], int]:
        """Start a supervisor; return it and a descriptor that reads as closed when the start has been decided.

        Harmless when one lives already or the command was started before: the new one ends at once.
        """
        ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
        try:
            with (self.path / "shim.log").open("ab") as errors:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", shim.__file__, str(self.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=ready_w,
                    stderr=errors,
                    cwd=self.path,
                    start_new_session=True,  # the agent's end, or an interrupt at its terminal, is not the run's
                )
        except BaseException:
            os.close(ready_r)
            raise
        finally:
            os.close(ready_w)
        return process, ready_r

    def supervised(self) -> bool:
        """Tell whether a supervisor lives: only it reads the control FIFO."""
        return self._tell(b"")

    def order_stop(self, grace_ms: int) -> bool:
        """Tell the supervisor to stop the run within ``grace_ms``; return False when none lives."""
        return self._tell(f"stop {grace_ms}\n".encode())

    def shim_errors(self) -> str:
        """Return the end of what a supervisor wrote on its standard error."""
        try:
            return (self.path / "shim.log").read_text(errors="replace")[-500:]
        except OSError:
            return ""

    def progress_ms(self) -> int:
        """Return the newest whole line of the progress file in milliseconds; 0 when there is none.

        Lines that are not a number within bounds are ignored, so a workload cannot break its own reports.
        """
        try:
            with self.progress_path.open("rb") as source:
                size = source.seek(0, os.SEEK_END)
                begin = source.seek(max(0, size - PROGRESS_TAIL_BYTES))
                lines = source.read(PROGRESS_TAIL_BYTES).split(b"\n")
        except OSError:
            return 0
        for line in reversed(lines[1 if begin else 0 : -1]):  # the first may be cut, the last is not finished
            text = line.strip()
            if text.isdigit() and len(text) <= 12 and int(text) <= MAX_PROGRESS_MS:
                return int(text)
        return 0

    def _tell(self, words: bytes) -> bool:
        try:
            control = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as failure:
            if failure.errno in (errno.ENXIO, errno.ENOENT):  # no reader; never opened
                return False
            raise
        try:
            if words:
                os.write(control, words)
        except BrokenPipeError:
            return False
        finally:
            os.close(control)
        return True

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except FileNotFoundError:
            return None


def all_runs(agent_dir: Path) -> list[RunDir]:
    """Return the folders of all runs this node ever took on, by name."""
    found = []
    for path in sorted(agent_dir.glob("*#*")):
        workload, _, number = path.name.rpartition("#")
        if number.isdigit() and path.is_dir():
            found.append(RunDir(agent_dir, workload, int(number)))
    return found
