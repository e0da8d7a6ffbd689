"""How a verb that runs on a loop ends when it is interrupted: within a second or so, whatever it is at.

Decides how long an interrupt waits for the loop. A loop that hears it cancels the verb, which then closes what it has open. A loop
that does not hear, because the verb folds a month of records in one go, is interrupted where it is. Work that the verb has given to
a thread is left behind: it reads, or makes what is made anew the next time, and ``leave`` does not wait for it.

It must never end a process that decides or keeps something: those have handlers of their own, in place of this one while they run.
Naive would be ``asyncio.run``, which cancels too, but waits for a loop that is busy and at the end for every thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from apportion.adapters.cli.failure import INTERRUPTED

T = TypeVar("T")
HEARD_WITHIN_S = 0.5


class _Threads(ThreadPoolExecutor):
    """The threads of one verb; once ``left`` is set nobody waits for them."""

    left = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; wait for what is under way unless it is left behind."""
        super().shutdown(wait=wait and not self.left, cancel_futures=cancel_futures or self.left)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a verb to its end. Raises ``KeyboardInterrupt`` soon after an interrupt, and what the verb raises."""
    with asyncio.Runner() as runner:
        loop, threads = runner.get_loop(), _Threads()
        loop.set_default_executor(threads)
        try:
            return runner.run(_listening(coroutine, threads))
        except KeyboardInterrupt:
            threads.left = True
            raise
        except asyncio.CancelledError:
            if threads.left:
                raise KeyboardInterrupt from None
            raise


async def _listening(coroutine: Coroutine[Any, Any, T], threads: _Threads) -> T:
    task = asyncio.current_task()
    assert task is not None
    with _cancelled_by_interrupt(task, threads):
        return await coroutine


@contextlib.contextmanager
def _cancelled_by_interrupt(task: asyncio.Task[Any], threads: _Threads) -> Iterator[None]:
    """Cancel the task at the first interrupt; raise at the second, and when the loop does not hear the first in time."""
    loop = asyncio.get_running_loop()

    raised = False

    def heard() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not raised:  # else what the verb has open is being closed, which a cancellation would end
            task.cancel()

    def late(_number: int, _frame: object) -> None:
        nonlocal raised
        raised = True
        raise KeyboardInterrupt

    def told(_number: int, _frame: object) -> None:
        if threads.left:
            raise KeyboardInterrupt
        threads.left = True
        signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, HEARD_WITHIN_S)
        loop.call_soon_threadsafe(heard)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield  # no interrupt arrives here
        return
    alarm, interrupt = signal.getsignal(signal.SIGALRM), signal.signal(signal.SIGINT, told)
    try:
        yield
    finally:
        if threads.left:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)


def leave() -> None:
    """End an interrupted process at once where a thread that was left behind would keep it; else return."""
    if any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)
