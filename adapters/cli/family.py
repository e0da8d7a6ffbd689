"""The processes of one local installation: started in order, watched, started again when they die, stopped in order.

``Family`` owns child processes only; it knows nothing of events. Each child is this same program with another verb, in
its own session, so that an interrupt typed at the terminal reaches the parent alone and the children end in order. A
child that keeps dying is given up after ``GIVE_UP`` starts within a minute, with the end of its log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.home import Home

GIVE_UP = 5
WINDOW_S = 60.0
STOP_S = 20.0
LOG_LINES = 15


@dataclass
class Child:
    """One process of the family."""

    name: str
    arguments: Sequence[str]
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)

    @property
    def running(self) -> bool:
        """Tell whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def log_end(self) -> str:
        """Return the last lines it wrote."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "(no log)"
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])


class Family:
    """The children of ``apportion up``."""

    def __init__(self, home: Home, tell: Callable[[str], None]) -> None:
        self.home = home
        self.tell = tell
        self.children: list[Child] = []

    def add(self, name: str, *arguments: str) -> Child:
        """Start a child that runs ``apportion <arguments>`` on this directory."""
        self.home.logs.mkdir(parents=True, exist_ok=True)
        child = Child(name, [*arguments, "--dir", str(self.home.root)], self.home.logs / f"{name}.log")
        self.children.append(child)
        self._start(child)
        return child

    def _start(self, child: Child) -> None:
        now = time.monotonic()
        child.starts = [moment for moment in child.starts if now - moment < WINDOW_S]
        if len(child.starts) >= GIVE_UP:
            raise Failure(
                FAILED,
                f"{child.name} died {len(child.starts)} times within a minute; its log ends with\n{child.log_end()}",
                f"read {child.log_path}, then `apportion doctor`",
            )
        child.starts.append(now)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("APPORTION_READY")}
        with child.log_path.open("ab") as log:
            child.process = subprocess.Popen(
                [sys.executable, "-m", "apportion.adapters.cli.main", *child.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )

    def look(self) -> None:
        """Start dead children again. Raises ``Failure`` for one that keeps dying."""
        for child in self.children:
            if child.process is not None and not child.running:
                code = child.process.returncode
                self.tell(f"{child.name} ended with {_ending(code)}; starting it again (log: {child.log_path})")
                self._start(child)

    def stop(self) -> None:
        """End the children in the reverse order of their start; one that does not end in time is killed."""
        for child in reversed(self.children):
            process = child.process
            if process is None or process.poll() is not None:
                continue
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.tell(f"{child.name} did not end within {STOP_S:.0f} s and was killed")
                process.kill()
                process.wait(STOP_S)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
