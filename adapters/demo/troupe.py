"""A follower seen from the play: start it, read its lines, tell it where to end, end it.

Owns one child process. It lives in its own session, so that an interrupt typed at the terminal reaches the play first.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Literal

import msgspec

from apportion.adapters.demo.followers import Progress
from apportion.adapters.processes.home import Home
from apportion.core.errors import ApportionError

END_S = 10.0
LOG_LINES = 12


class FollowerFailed(ApportionError):
    """A follower ended before its time, or found a difference."""


class Follower:
    """One child of the play."""

    def __init__(self, name: Literal["verify", "project"], home: Home) -> None:
        self.name = name
        self.progress = Progress()
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, unless it was; its own words go to ``logs/demo-<name>.log``."""
        if self._process is not None:
            return
        self._home.logs.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "apportion.adapters.demo.followers", self.name, "--dir", str(self._home.root),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with contextlib.suppress(msgspec.DecodeError):
                self.progress = msgspec.json.decode(line, type=Progress)

    def check(self) -> None:
        """Raise ``FollowerFailed`` when it has failed, or is gone without being done."""
        if self.progress.failure:
            raise FollowerFailed(f"{self.name}: {self.progress.failure}")
        reading = self._reading
        if reading is not None and reading.done() and not self.progress.done:
            raise FollowerFailed(f"{self.name} ended before its time:\n{self._log_end()}")

    def finish_at(self, seq: int) -> None:
        """Let it end when it has answered ``seq``."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(ConnectionError, RuntimeError):  # gone: ``check`` tells
                self._process.stdin.write(f"end {seq}\n".encode())

    async def end(self) -> None:
        """Close its input, which ends it; kill it when it does not end."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def _log_path(self) -> Path:
        return self._home.logs / f"demo-{self.name}.log"

    def _log_end(self) -> str:
        try:
            lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return f"(no log at {self._log_path})"
        return "\n".join(lines[-LOG_LINES:])
