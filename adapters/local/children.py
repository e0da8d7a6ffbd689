"""Processes that are started again when they die: one ``Child`` each, with its log, its words to us, its patience.

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

from apportion.adapters.local.component import LIFELINE_FD, READY, WORDS_FD
from apportion.adapters.processes import ending
from apportion.adapters.text import render
from apportion.core.errors import ApportionError

BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
HEALTHY_S = 30.0  # after so long a new death is not a repetition
TRIES_BEFORE_READY = 5
LOG_LINES = 15
KILLED_AFTER_S = 30.0
STILL_ENDING_S = 5.0
LAST_WORDS_S = 1.0


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
        self._hearing: asyncio.Task[None] | None = None
        self._heard_at_s = 0.0

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
                    f"{self.name} ended with {ended_with(code)} {render.many(deaths, 'time')} and was never ready; "
                    f"{self.log_path} ends with\n{self.log_end()}"
                )
            wait_s = BACKOFF_S[min(deaths, len(BACKOFF_S)) - 1]
            self._tell(f"{self.name:<12} ended with {ended_with(code)}; again in {wait_s:g} s (log: {self.log_path})")
            await asyncio.sleep(wait_s)

    async def stop(self, how: signal.Signals = signal.SIGTERM, patience_s: float = KILLED_AFTER_S) -> None:
        """End it and wait; kill it when it does not end within ``patience_s``."""
        self._stopping = True
        process = self.process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        told_s = 0.0
        while not await _ended(process, min(STILL_ENDING_S, patience_s - told_s)):
            told_s += STILL_ENDING_S
            if told_s >= patience_s:
                self._tell(f"{self.name:<12} did not end within {patience_s:.0f} s and was killed")
                process.kill()
                await _ended(process, KILLED_AFTER_S)
                break
            if time.monotonic() - self._heard_at_s > STILL_ENDING_S:  # else it says itself what it waits for
                self._tell(f"{self.name:<12} pid {process.pid} is still ending after {told_s:.0f} s (log: {self.log_path})")
        await self._heard_out()

    async def _run_once(self) -> int:
        words_r, words_w = os.pipe()
        lifeline_r, self._lifeline = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name not in (WORDS_FD, LIFELINE_FD)}
        # A signal that comes before the child can hear it is kept for it: the mask is inherited, the agent lifts it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
        try:
            with self.log_path.open("ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, *self._arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, "PYTHONUNBUFFERED": "1", WORDS_FD: str(words_w), LIFELINE_FD: str(lifeline_r)},
                    pass_fds=(words_w, lifeline_r),
                    start_new_session=True,
                )
            self.starts += 1
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(words_w)
            os.close(lifeline_r)
        self._hearing = asyncio.create_task(self._hear(words_r))
        try:
            await _ended(self.process, None)
            return self.process.returncode
        finally:
            await self._heard_out()
            os.close(self._lifeline)

    async def _heard_out(self) -> None:
        """Hear what a component that has ended said last."""
        if self._hearing is not None:
            await asyncio.wait((self._hearing,), timeout=LAST_WORDS_S)
            await ending.let_go(self._hearing)

    async def _hear(self, descriptor: int) -> None:
        """Pass on what a component says: that it is ready, and what else a person should read."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        os.set_blocking(descriptor, False)  # it may be told readable once more than it is
        loop.add_reader(descriptor, readable.set)
        rest = b""
        try:
            while True:
                await readable.wait()
                readable.clear()
                try:
                    heard = os.read(descriptor, 4_096)
                except BlockingIOError:
                    continue
                if not heard:
                    return
                *lines, rest = (rest + heard).split(b"\n")
                for line in lines:
                    self._heard(line.decode("utf-8", "replace").strip())
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _heard(self, line: str) -> None:
        self._heard_at_s = time.monotonic()
        if line.startswith(READY):
            self.ready.set()
            line = f"pid {self.pid}  {line.removeprefix(READY)}"
        self._tell(f"{self.name:<12} {line}")


def ended_with(code: int) -> str:
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
