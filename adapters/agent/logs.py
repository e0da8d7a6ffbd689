"""The output of a run, read from the node's folders: once, or as it is written.

A pure reader of ``agents/<node>/<workload>#<run>/``. It never asks the log or the agent, so it works while they are
away; it sees only nodes whose folders are on this machine.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from apportion.adapters.agent.rundir import RunDir
from apportion.adapters.processes.home import Home
from apportion.core.errors import ApportionError

POLL_S = 0.1
CHUNK_BYTES = 64 * 1024
STREAMS = ("stdout", "stderr")


class NoLog(ApportionError):
    """No such run has left output here."""


class LogChunk(NamedTuple):
    """A piece of output as written; ``stream`` is ``stdout`` or ``stderr``."""

    node: str
    run: int
    stream: str
    text: str


def runs_of(home: Home, workload: str) -> dict[int, list[tuple[str, RunDir]]]:
    """Return the runs of a workload that have folders here: run number -> (node, folder), in order."""
    found: dict[int, list[tuple[str, RunDir]]] = {}
    for path in sorted(home.agents.glob(f"*/{workload}#*")):
        number = path.name.rpartition("#")[2]
        if number.isdigit():
            found.setdefault(int(number), []).append((path.parent.name, RunDir(path.parent, workload, int(number))))
    return dict(sorted(found.items()))


def read_log(
    home: Home,
    workload: str,
    run: int | None = None,
    follow: bool = False,
    *,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[LogChunk]:
    """Yield the output of a run, the newest when ``run`` is None.

    With ``follow`` it waits for the run to begin, yields what is written, and ends when the run has ended (or
    ``go_on`` says no). Otherwise it yields what there is; raises ``NoLog`` when there is nothing.
    """
    runs = runs_of(home, workload)
    while follow and go_on() and not (runs if run is None else run in runs):
        time.sleep(POLL_S)
        runs = runs_of(home, workload)
    number = max(runs, default=0) if run is None else run
    if number not in runs:
        known = ", ".join(str(n) for n in runs) or "none"
        wanted = f"run {run} of {workload}" if run is not None else f"{workload}"
        raise NoLog(
            f"no output of {wanted} under {home.agents} (runs here: {known}); has it started, and on this node?"
        )
    readers = [_Reader(node, folder, stream) for node, folder in runs[number] for stream in STREAMS]
    try:
        while True:
            ended = all(folder.exit() is not None for _node, folder in runs[number])  # before the last reading
            yielded = False
            for reader in readers:
                for text in reader.read():
                    yielded = True
                    yield LogChunk(reader.node, number, reader.stream, text)
            if not follow or (ended and not yielded) or not go_on():
                return
            if not yielded:
                time.sleep(POLL_S)
    finally:
        for reader in readers:
            reader.close()


class _Reader:
    """One growing file."""

    def __init__(self, node: str, folder: RunDir, stream: str) -> None:
        self.node = node
        self.stream = stream
        self._path: Path = folder.path / stream
        self._file: BinaryIO | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> Iterator[str]:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return
        while data := self._file.read(CHUNK_BYTES):
            if text := self._decoder.decode(data):
                yield text

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
