"""The two followers of a play, each a process of its own: one derives every decision again, one fills the projection.

``python -m apportion.adapters.demo.followers verify|project --dir DIR`` reads both streams from their beginnings while they
grow, writes a JSON line of ``Progress`` at every step, and ends when a line ``end SEQ`` has come on its input and it has
answered that sequence. The verifier does what a standby does, in larger steps: it derives each cycle from the records and
compares the bytes; a difference stops it with both sides of it. Neither ever writes a log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.stream import Tail
from apportion.adapters.processes.build import keep_kernels_apart
from apportion.adapters.processes.home import Home
from apportion.core.envelope import Record
from apportion.core.errors import ApportionError

T = TypeVar("T")
READ_RECORDS = 50_000
FEW = 500  # fewer than so many at once: there is no more for now
PATIENCE_S = 0.02
STEP_S = 1.0


class Progress(msgspec.Struct, omit_defaults=True):
    """Where a follower is. ``failure`` ends it."""

    seq: int = 0
    cycles: int = 0
    digest: str = ""
    rss_mb: int = 0
    cpu_s: float = 0.0
    done: bool = False
    failure: str = ""


class Parent:
    """What the process that started us says, and what it is told."""

    def __init__(self) -> None:
        self.end_seq: int | None = None
        self.gone = False
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        """Read ``end SEQ`` from stdin in a thread; the end of stdin means that the parent is gone."""
        self._wake = wake
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                word, _, number = line.strip().partition(" ")
                if word == "end" and number.isdigit():
                    self.end_seq = int(number)
                    loop.call_soon_threadsafe(self._wake)
            self.gone = True
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(self._wake)

        threading.Thread(target=read, name="parent", daemon=True).start()

    @property
    def ending(self) -> bool:
        """Tell whether the play is over: from now on hurry."""
        return self.gone or self.end_seq is not None

    def done(self, seq: int) -> bool:
        """Tell whether a follower at ``seq`` may end."""
        return self.gone or (self.end_seq is not None and seq >= self.end_seq)


def tell(progress: Progress) -> None:
    """Write one line for the parent."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    progress.rss_mb = usage.ru_maxrss // 1024
    progress.cpu_s = round(usage.ru_utime + usage.ru_stime, 2)
    sys.stdout.write(msgspec.json.encode(progress).decode() + "\n")
    sys.stdout.flush()


async def gather(tail: Tail[T], limit: int) -> list[T]:
    """Return what has arrived by now, in order."""
    found: list[T] = []
    while len(found) < limit:
        taken = await tail.take(limit, PATIENCE_S)
        found += taken
        if len(taken) < FEW:
            break
    return found


async def verify(home: Home, parent: Parent) -> None:
    """Derive every cycle again when its batch is stored, and compare; in large steps, as a standby far behind would."""
    from apportion.adapters.service.recovery import StoredCycles
    from apportion.core.engine import Core

    async with await Bus.at_home(home, name="apportion demo verifier") as bus:
        core, stored, events = Core.new(), StoredCycles(bus.decisions, 0), bus.events.tail(0)
        parent.listen(events.wake)
        records: list[Record] = []
        while not parent.done(core.seq) or core.tick_pending:
            records = records or await gather(events, READ_RECORDS)
            position = 0
            while position < len(records) or core.tick_pending:
                if core.tick_pending:
                    batch = await stored.answer_to(core.seq)
                    if batch is None:
                        break
                    core.verify(batch.body)
                else:
                    position = core.fold_many(records, position)
            records = records[position:]
            tell(Progress(core.seq, core.cycle))
            if not parent.ending:
                await asyncio.sleep(STEP_S)
        await events.close()
        tell(Progress(core.seq, core.cycle, core.digest(), done=True))


async def project(home: Home, parent: Parent) -> None:
    """Feed the projection as the logs grow; in large steps, because a commit has a fixed price."""
    from apportion.adapters.projector.building import feed
    from apportion.projections.runner import Projection

    async with await Bus.at_home(home, name="apportion demo projector") as bus:
        with Projection(home.projection) as projection:
            hurry = asyncio.Event()
            parent.listen(hurry.set)
            while not parent.done(projection.position.seq):
                await feed(projection, bus.events, bus.decisions)
                tell(Progress(projection.position.seq, projection.position.decision_seq))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STEP_S):
                        await hurry.wait()
            projection.refresh()
            at = projection.position
        tell(Progress(at.seq, at.decision_seq, done=True))


def main(argv: list[str] | None = None) -> int:
    """Run one follower; return its exit code."""
    parser = argparse.ArgumentParser(prog="apportion.adapters.demo.followers")
    parser.add_argument("name", choices=("verify", "project"))
    parser.add_argument("--dir", required=True)
    options = parser.parse_args(argv)
    keep_kernels_apart()
    work = verify if options.name == "verify" else project
    try:
        asyncio.run(work(Home.of(options.dir), Parent()))
    except ApportionError as error:
        tell(Progress(failure=str(error)))
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
