"""Progress of long commands: a live bar on a terminal, plain lines now and then elsewhere; always on stderr.

Takes what the work reports and prints it; it never changes the work, and with ``--json`` it is silent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.past.driving import OnProgress, Progress

LINE_EVERY_S = 5.0
BAR_EVERY_S = 0.1


@contextmanager
def progress(label: str, *, quiet: bool = False) -> Iterator[OnProgress]:
    """Yield a callback that shows sequence, simulated time, events per second and the time that is left."""
    if quiet:
        yield lambda _at: None
        return
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    every_s = BAR_EVERY_S if terminal else LINE_EVERY_S
    last_shown = started if not terminal else 0.0
    shown = False

    def show(at: Progress) -> None:
        nonlocal last_shown, shown
        now = time.monotonic()
        if at.pause:
            sys.stderr.write(f"{label}: {at.pause}\n")
            sys.stderr.flush()
        if at.pause or now - last_shown < every_s:
            return
        last_shown, shown = now, True
        rate, ahead = at.events / max(now - started, 0.001), at.last_seq - at.seq
        part = at.events * 100 // max(at.events + ahead, 1)  # of the work, which may begin late in the log
        bar = f" [{'#' * (part // 10)}{'.' * (10 - part // 10)}]" if terminal else ""
        text = (
            f"{label} {part:>3} %{bar}  {render.when(at.time_ms)[:16] + 'Z' if at.time_ms else 'begins'}  {rate:,.0f} events/s  "
            f"{_left(ahead, rate)}seq {at.seq:,}"
        )
        sys.stderr.write(f"\r\x1b[2K{text[: _columns() - 1]}" if terminal else text + "\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal and shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


@contextmanager
def counting(label: str, unit: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback that is told how much is done, of how much, and shows it with the time that is left."""
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    every_s = BAR_EVERY_S if terminal else LINE_EVERY_S
    last_shown = started if not terminal else 0.0

    def show(done: int, whole: int) -> None:
        nonlocal last_shown
        now = time.monotonic()
        if quiet or now - last_shown < every_s:
            return
        last_shown = now
        part = done * 100 // max(whole, 1)
        bar = f" [{'#' * (part // 10)}{'.' * (10 - part // 10)}]" if terminal else ""
        text = f"{label} {part:>3} %{bar}  {done:,} of {whole:,} {unit}  {_left(whole - done, done / max(now - started, 0.001))}"
        sys.stderr.write(f"\r\x1b[2K{text[: _columns() - 1]}" if terminal else text + "\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal and last_shown and not quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _left(count: int, rate: float) -> str:
    """Say how long so many take at so many a second; nothing while nothing is known."""
    return f"{render.duration(int(count / rate) * 1000)} left  " if rate else ""


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
