"""How a process of ours ends when it is told to: every step of closing has a bound, and what is given up is said on stderr.

Decides when waiting for an answer that may never come is over: of a server that is gone, or of a task that does not hear
that it is cancelled. Whoever closes something uses ``within`` and ``let_go``, whoever waits for a server before it can end
``until_stopped``, and a process wraps its life in ``on_signals``, whose last resort ends the process when all else failed.
Only answers are given up: what matters is on disk or in the log before, and is found there at the next start.

It must never bound work whose result is kept on this machine (a commit, a snapshot, a copy); only the last resort ends that.

Naive would be ``asyncio.wait_for`` and one ``cancel``. But ``wait_for`` of Python 3.11 drops a cancellation that arrives in
the turns of the loop in which its future is done, and so does nats-py in places; and it waits without end for a task that
does not end when cancelled. A loop with such a wait, cancelled while there is news for it, goes on for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

STEP_S = 1.0  # for one closing step that may need a server's answer; with a server that answers it takes a millisecond
CANCEL_AGAIN_S = 0.25
FORCED = 5  # exit code of a process that its last resort has ended
SIGNALS = (signal.SIGTERM, signal.SIGINT)

_steps: list[str] = []  # closing steps under way, for the last resort's words
_armed = False


async def within(what: str, step: Coroutine[Any, Any, object], seconds: float = STEP_S) -> bool:
    """Take one closing step, for at most ``seconds``; False when it was given up. Raises what the step raises.

    A step that a cancellation ended, which was not the caller's, has ended: a library may cancel what it waits for itself.
    """
    task = asyncio.get_running_loop().create_task(step, name=what)
    _steps.append(what)
    try:
        await asyncio.wait((task,), timeout=seconds)
        if task.done():
            if not task.cancelled():
                task.result()
            return True
        logger.warning("%s took longer than %g s and was given up", what, seconds)
        return False
    finally:
        await let_go(task)
        _steps.remove(what)


async def let_go(*tasks: asyncio.Task[Any], seconds: float = STEP_S) -> bool:
    """Cancel tasks, again and again, until they have ended; False when some had not after ``seconds``.

    What they raise is dropped: who is let go has nothing to say any more.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    left = set(tasks)
    while left and loop.time() < until_s:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    for task in tasks:
        if task.done():
            _seen(task)
        else:
            task.add_done_callback(_seen)
    if left:
        names = ", ".join(sorted(task.get_name() for task in left))
        logger.warning("%s did not hear within %g s that it is over, and was given up", names, seconds)
    return not left


async def until_stopped(
    stop: asyncio.Event, step: Coroutine[Any, Any, T], *, patience_s: float = 0.0
) -> asyncio.Task[T] | None:
    """Take a step that may wait through an outage; return it done, or None when ``stop`` was set first.

    A step gets ``patience_s`` from then on to end by itself. Raises what the step raises.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(step, name=getattr(step, "__qualname__", None))
    stopping = loop.create_task(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and patience_s:
            await asyncio.wait((task,), timeout=patience_s)
        if not task.done():
            return None
        task.result()
        return task
    finally:
        await let_go(task, stopping)


@contextlib.contextmanager
def on_signals(name: str, stop: Callable[[], None], within_s: float) -> Iterator[None]:
    """Call ``stop`` on SIGTERM and on an interrupt; the process ends at most ``within_s`` later, whatever happens."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        last_resort(name, within_s)
        stop()

    for how in SIGNALS:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(how, told)
    try:
        yield
    finally:
        for how in SIGNALS:
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(how)


def last_resort(name: str, within_s: float) -> None:
    """End this process ``within_s`` from now with exit code ``FORCED``, unless it has ended. The first call counts.

    A thread of its own: the loop may be what hangs, or the interpreter while it waits for threads at its end.
    """
    global _armed
    if _armed:
        return
    _armed = True

    def end() -> None:
        time.sleep(within_s)
        waiting = ", ".join(_steps) or "a task that does not end"
        text = f"{name} was told to end and had not after {within_s:g} s (last: {waiting}); it ends now, exit code {FORCED}\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())
        os._exit(FORCED)

    threading.Thread(target=end, name="last-resort", daemon=True).start()


def _seen(task: asyncio.Task[Any]) -> None:
    """Look at how a task ended, so that nobody complains that nobody did."""
    if not task.cancelled():
        task.exception()
