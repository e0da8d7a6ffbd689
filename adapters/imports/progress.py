"""What a person sees while a long file is read: how far, how many lines a second, time left. On stderr.

Decides nothing. On a terminal one live line (rich), elsewhere a plain line every few seconds, nothing when quiet. A file that
is read within a second shows nothing at all.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 5.0
QUIET_S = 1.0


class Meter:
    """The display; a context manager. ``seen`` is told the bytes of the file that were read."""

    def __init__(self, name: str, size_bytes: int, *, quiet: bool) -> None:
        self._name, self._size, self._quiet = name, max(size_bytes, 1), quiet
        self._began_s = self._shown_s = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def seen(self, bytes_read: int) -> None:
        """Show that so many bytes were read."""
        now_s = time.monotonic()
        if self._quiet or now_s - self._began_s < QUIET_S:
            return
        if sys.stderr.isatty():
            self._live(bytes_read)
        elif now_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = now_s
            left_s = int((now_s - self._began_s) * (self._size - bytes_read) / max(bytes_read, 1))
            sys.stderr.write(f"import  {bytes_read * 100 // self._size:>3} %  {self._name}  about {left_s}s left\n")
            sys.stderr.flush()

    def _live(self, bytes_read: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                BarColumn(24),
                TextColumn("{task.percentage:>3.0f} %  {task.description}"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(self._name, total=self._size)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=bytes_read)
