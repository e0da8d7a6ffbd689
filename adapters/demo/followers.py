"""The two followers of a play, each a process of its own: one derives every decision again, one fills the projection.

``python -m apportion.adapters.demo.followers verify|project --dir DIR`` reads both streams from their beginnings while they
grow, writes one JSON line of ``Progress`` twice a second, and ends when a line ``end SEQ`` has come on its input and it
has answered that sequence. The verifier is the production standby (``SchedulerService`` with its writer closed), so a
difference stops it with both sides of it. Neither ever writes a log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import sys
import threading
from collections.abc import Callable

import msgspec

from apportion.adapters.bus.local import Bus
from apportion.adapters.home import Home
from apportion.core.errors import ApportionError

REPORT_EVERY_S = 0.5
READ_RECORDS = 20_000
READ_BATCHES = 4_000
PATIENCE_S = 0.5


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


async def verify(home: Home, parent: Parent) -> None:
    """Derive every cycle again as soon as its batch is stored, and compare."""
    from apportion.adapters.service.scheduler import SchedulerService

    async with await Bus.at_home(home, name="apportion demo verifier") as bus:
        service = SchedulerService(bus.events, bus.decisions, bus.publisher, role="standby")
        answered = asyncio.Event()

        def look(_batch: object = None) -> None:
            if parent.done(service.core.seq):
                answered.set()

        service.on_batch(look)
        parent.listen(look)
        running = asyncio.create_task(service.run())
        ending = asyncio.create_task(answered.wait())
        try:
            while not ending.done():
                await asyncio.wait((running, ending), timeout=REPORT_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    await running
                    raise ApportionError("the verifier ended before the play")
                tell(Progress(service.core.seq, service.core.cycle))
        finally:
            service.stop()
            ending.cancel()
            with contextlib.suppress(ApportionError):
                await running
        tell(Progress(service.core.seq, service.core.cycle, service.core.digest(), done=True))


async def project(home: Home, parent: Parent) -> None:
    """Fold both streams into the projection's file as they grow."""
    from apportion.projections.runner import Projection

    loop = asyncio.get_running_loop()
    async with await Bus.at_home(home, name="apportion demo projector") as bus:
        with Projection(home.projection) as projection:
            events = bus.events.tail(projection.wants_after_seq)
            decisions = bus.decisions.tail(projection.wants_after_decision_seq)

            def wake() -> None:
                events.wake()
                decisions.wake()

            parent.listen(wake)
            told_s = 0.0
            cycles = 0
            while not parent.done(projection.position.seq):
                records, batches = await asyncio.gather(
                    events.take(READ_RECORDS, PATIENCE_S), decisions.take(READ_BATCHES, PATIENCE_S)
                )
                cycles += projection.ingest(records, batches)
                if loop.time() - told_s >= REPORT_EVERY_S:
                    told_s = loop.time()
                    tell(Progress(projection.position.seq, cycles))
            await events.close()
            await decisions.close()
            projection.refresh()
            seq = projection.position.seq
        tell(Progress(seq, cycles, done=True))


def main(argv: list[str] | None = None) -> int:
    """Run one follower; return its exit code."""
    parser = argparse.ArgumentParser(prog="apportion.adapters.demo.followers")
    parser.add_argument("name", choices=("verify", "project"))
    parser.add_argument("--dir", required=True)
    options = parser.parse_args(argv)
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
