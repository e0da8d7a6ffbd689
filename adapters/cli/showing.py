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
    from apportion.adapters.past.replaying import OnProgress, Progress

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
        if now - last_shown < every_s:
            return
        last_shown, shown = now, True
        rate = at.events / max(now - started, 0.001)
        left_s = (at.last_seq - at.seq) / rate if rate else 0.0
        part = at.seq * 100 // max(at.last_seq, 1)
        bar = f" [{'#' * (part // 10)}{'.' * (10 - part // 10)}]" if terminal else ""
        text = (
            f"{label} {part:>3} %{bar}  {render.when(at.time_ms)[:16] + 'Z' if at.time_ms else 'begins'}  {rate:,.0f} events/s  "
            f"{render.duration(int(left_s) * 1000)} left  seq {at.seq:,}"
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
        left_s = (now - started) * (whole - done) / max(done, 1)
        bar = f" [{'#' * (part // 10)}{'.' * (10 - part // 10)}]" if terminal else ""
        text = f"{label} {part:>3} %{bar}  {done:,} of {whole:,} {unit}  {render.duration(int(left_s) * 1000)} left"
        sys.stderr.write(f"\r\x1b[2K{text[: _columns() - 1]}" if terminal else text + "\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal and last_shown and not quiet:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
