"""What a person sees while the demo plays: simulated time, events per second, sequence, lag, time left. On stderr.

Decides nothing; shows numbers it is given. On a terminal one live line (rich), elsewhere a plain line every few seconds,
nothing when quiet.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from apportion.adapters.simulation.world import WorldOptions
from apportion.adapters.text import render

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.2


class Board:
    """The display; a context manager."""

    def __init__(self, options: WorldOptions, *, quiet: bool) -> None:
        self._start_ms, self._length_ms = options.start_ms, options.length_ms
        self._quiet = quiet
        self._began_s = self._shown_s = time.monotonic()
        self._shown_seq = 0
        self._bar: Progress | None = None

    def __enter__(self) -> Board:
        self._began_s = self._shown_s = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.description}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("starting", total=self._length_ms)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, now_ms: int, seq: int, cycles: int, followers: list[int]) -> None:
        """Show the state of the play; ``cycles`` 0 means that it is over and the followers catch up."""
        now_s = time.monotonic()
        every_s = BAR_EVERY_S if self._bar is not None else LINE_EVERY_S
        if self._quiet or now_s - self._shown_s < every_s:
            return
        rate = (seq - self._shown_seq) / (now_s - self._shown_s)
        self._shown_s, self._shown_seq = now_s, seq
        done_ms = now_ms - self._start_ms
        left_s = (now_s - self._began_s) * (self._length_ms - done_ms) / max(done_ms, 1)
        lag = max(0, seq - min(followers, default=seq))
        if cycles:
            text = (
                f"{render.when(now_ms)}  {rate:>7,.0f} events/s  seq {seq:,}  lag {lag:,}  "
                f"{render.duration(int(left_s) * 1_000)} left"
            )
        else:
            text = f"{render.when(now_ms)}  played; deriving again and projecting: {render.many(lag, 'event')} left"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done_ms, description=text)
        else:
            sys.stderr.write(f"demo  {done_ms * 100 // self._length_ms:>3} %  {text}\n")
            sys.stderr.flush()
