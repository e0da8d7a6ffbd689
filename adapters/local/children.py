"""Processes that are started again when they die: one ``Child`` each, with its log, its word of readiness, its patience.

Owns child processes only; knows nothing of events. Each child is in its own session, so that an interrupt typed at the
terminal reaches the parent alone and the children can be ended in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from apportion.adapters.local.component import LIFELINE_FD, READY_FD
from apportion.core.errors import ApportionError

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
HEALTHY_S = 30.0  # after so long a new death is not a repetition
TRIES_BEFORE_READY = 5
LOG_LINES = 15
KILLED_AFTER_S = 30.0


class ChildFailed(ApportionError):
    """A component died again and again before it was ever ready."""


class Child:
    """One component: ``keep`` runs it until cancelled, ``stop`` ends it."""

    def __init__(self, name: str, arguments: Sequence[str], log_path: Path, tell: Callable[[str], None]) -> None:
        """Describe it; nothing runs yet. ``arguments`` follow the Python interpreter."""
        self.name = name
        self.log_path = log_path
        self.ready = asyncio.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._arguments = list(arguments)
        self._tell = tell
        self._lifeline = -1  # our end; when it closes the child ends itself
        self._stopping = False

    @property
    def pid(self) -> int:
        """Return the process id of the living process, 0 when there is none."""
        return self.process.pid if self.process is not None and self.process.poll() is None else 0

    def log_end(self) -> str:
        """Return the last lines it wrote."""
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])

    async def keep(self) -> None:
        """Start it, and start it again whenever it ends. Raises ``ChildFailed`` if it never becomes ready."""
        deaths = 0
        while not self._stopping:
            begun = time.monotonic()
            code = await self._run_once()
            if self._stopping:
                return
            deaths = 1 if time.monotonic() - begun > HEALTHY_S else deaths + 1
            if not self.ready.is_set() and deaths >= TRIES_BEFORE_READY:
                raise ChildFailed(
                    f"{self.name} ended with {ending(code)} {deaths} times and was never ready; {self.log_path} ends "
                    f"with\n{self.log_end()}"
                )
            wait_s = BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1]
            self._tell(f"{self.name:<12} ended with {ending(code)}; again in {wait_s:g} s (log: {self.log_path})")
            await asyncio.sleep(wait_s)

    async def stop(self, how: signal.Signals = signal.SIGTERM, patience_s: float = KILLED_AFTER_S) -> None:
        """End it and wait; kill it when it does not end within ``patience_s``."""
        self._stopping = True
        process = self.process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        if not await _ended(process, patience_s):
            self._tell(f"{self.name:<12} did not end within {patience_s:.0f} s and was killed")
            process.kill()
            await _ended(process, KILLED_AFTER_S)

    async def _run_once(self) -> int:
        ready_r, ready_w = os.pipe()
        lifeline_r, self._lifeline = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name not in (READY_FD, LIFELINE_FD)}
        try:
            with self.log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, *self._arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, "PYTHONUNBUFFERED": "1", READY_FD: str(ready_w), LIFELINE_FD: str(lifeline_r)},
                    pass_fds=(ready_w, lifeline_r),
                    start_new_session=True,
                )
            self.starts += 1
        finally:
            os.close(ready_w)
            os.close(lifeline_r)
        hearing = asyncio.create_task(self._hear(ready_r))
        try:
            await _ended(self.process, None)
            return self.process.returncode
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
            os.close(self._lifeline)

    async def _hear(self, descriptor: int) -> None:
        """Wait for the one line a component writes when it is ready, and pass it on."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
            line = os.read(descriptor, 4_096).decode("utf-8", "replace").strip()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        if line:
            self.ready.set()
            self._tell(f"{self.name:<12} pid {self.pid}  {line}")


def ending(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


async def _ended(process: subprocess.Popen[bytes], patience_s: float | None) -> bool:
    """Wait for the end of a child process, without a thread and without asking again and again."""
    if process.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    handle = os.pidfd_open(process.pid)
    loop.add_reader(handle, gone.set)
    try:
        async with asyncio.timeout(patience_s):
            await gone.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    process.wait()
    return True
