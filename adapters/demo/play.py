"""The demo: a simulated cluster under load, played through a real nats-server in stated time.

Decides how simulated time passes: per simulated minute the world's events and a tick are written to the server at once,
without acknowledgements; the sequence of the tick, in the batch that answers it, tells that all were stored. Then the
world is given that batch. The scheduler is the production ``SchedulerService``
in this process; two followers (``followers``) derive every decision again and fill the projection, each in its own
process, while the play goes on. What it returns is a pure function of trace or seed, options and this program, but for
the times and sizes of processes: equal seeds give equal bytes in EVENTS and in DECISIONS.

The server runs with relaxed syncing, which only a log that can be played again may have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.adapters.bus.connection import publish_command
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.demo.outcome import Outcome
from apportion.adapters.demo.progress import Board
from apportion.adapters.demo.report import build
from apportion.adapters.demo.trace import TRACE_EPOCH_MS, TraceError, read_trace
from apportion.adapters.demo.troupe import Follower
from apportion.adapters.home import Home
from apportion.adapters.service.scheduler import SchedulerService
from apportion.adapters.simulation.cluster import Layout, shares_for
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.stated import tick_event
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.adapters.snapshots import DiskSnapshots
from apportion.core.decisions import CycleBatch
from apportion.core.envelope import StoredBatch
from apportion.core.errors import ApportionError

MS_PER_DAY = 86_400_000
CYCLE_MS = 60_000
ANSWER_S = 300.0  # no cycle takes so long, not even one that compiles
VERIFY_FROM = 120  # cycles
MARK = "demo.json"


class DemoRefused(ApportionError):
    """The demo cannot be played as asked; the message says what to do."""


@dataclass(frozen=True)
class DemoOptions:
    """What is asked of a demo. Without ``trace`` the jobs are generated from ``seed``."""

    home: Home
    days: int | None = None
    trace: Path | None = None
    seed: int = 1
    first_day: int = 14  # of the trace
    quiet: bool = False
    layout: Layout = field(default_factory=Layout)
    length_ms: int = 0  # instead of whole days


async def play(options: DemoOptions) -> dict[str, Any]:
    """Play the demo and return its report; see ``report.build`` for the keys.

    Leaves the directory as an installation whose server is stopped. Raises ``DemoRefused``; ``KeyboardInterrupt`` after
    everything was ended cleanly; ``ApportionError`` when the core, a follower or the server failed.
    """
    began_s = time.monotonic()
    jobs, world_options = story(options)
    home = _claim(options)
    server = EmbeddedServer(home, sync="relaxed")
    await asyncio.to_thread(server.start)
    try:
        stage = _Stage(options, home, server, World(jobs, world_options))
        with _interruptible() as interrupted:
            await stage.play(interrupted)
        document = await asyncio.to_thread(build, home, stage.outcome())
        document["wall_s"] = round(time.monotonic() - began_s, 1)
        (home.root / MARK).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return document
    finally:
        await asyncio.to_thread(server.stop)


def run_demo(options: DemoOptions) -> dict[str, Any]:
    """Play the demo from code that is not asynchronous; see ``play``."""
    return asyncio.run(play(options))


def story(options: DemoOptions) -> tuple[list[Job], WorldOptions]:
    """Return the jobs and the world they are played in. Raises ``DemoRefused``."""
    days = 7 if options.days is None else options.days
    if not 1 <= days <= 365:
        raise DemoRefused(f"--days {days}: play between 1 and 365 days; 7 is the usual week")
    length_ms = options.length_ms or days * MS_PER_DAY
    layout = options.layout
    if options.trace is None:
        shape = Shape(days=days, gpus=layout.gpus, largest=min(64, max(1, layout.gpus // 4)))
        jobs = generate(options.seed, shape)
        return jobs, WorldOptions(seed=options.seed, length_ms=length_ms, layout=layout)
    try:
        jobs = read_trace(options.trace, options.first_day, days)
    except TraceError as error:
        raise DemoRefused(f"--trace: {error}") from error
    layout = layout._replace(shares=shares_for([job.program for job in jobs]))
    start_ms = TRACE_EPOCH_MS + options.first_day * MS_PER_DAY
    numbered = [job._replace(job_id=f"{job.program}-{number:05d}") for number, job in enumerate(jobs, 1)]
    return numbered, WorldOptions(seed=options.seed, start_ms=start_ms, length_ms=length_ms, layout=layout)


def _claim(options: DemoOptions) -> Home:
    """Make the directory ours and empty: an earlier demo is replaced, anything else is left alone."""
    home = options.home
    running = EmbeddedServer.running(home)
    if running is not None:
        raise DemoRefused(
            f"a nats-server (pid {running.pid}) runs for {home.root}; end what uses it (`apportion up`), or choose --dir"
        )
    mark = home.root / MARK
    if home.jetstream.exists() and not mark.exists():
        raise DemoRefused(
            f"{home.root} holds a log that no demo made; the demo begins its own: choose another directory with --dir"
        )
    for folder in (home.jetstream, home.snapshots, home.published):
        shutil.rmtree(folder, ignore_errors=True)
    for file in home.root.glob("projection.duckdb*"):
        file.unlink()
    home.ensure()
    mark.write_text("{}\n", encoding="utf-8")
    return home


@contextlib.contextmanager
def _interruptible() -> Iterator[asyncio.Event]:
    """Turn an interrupt and SIGTERM into an event; the play ends after its current minute."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for how in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(how, event.set)
    try:
        yield event
    finally:
        for how in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(how)


class _Stage:
    """One play: the service, the followers and the world, from the opening to the last batch."""

    def __init__(self, options: DemoOptions, home: Home, server: EmbeddedServer, world: World) -> None:
        self._options = options
        self._home = home
        self._server = server
        self.world = world
        self._batch: asyncio.Future[StoredBatch] | None = None
        self._verifier, self._projector = Follower("verify", home), Follower("project", home)
        self._followers = [self._verifier, self._projector]
        self._outcome: Outcome | None = None

    def outcome(self) -> Outcome:
        """Return what is known after ``play``."""
        assert self._outcome is not None
        return self._outcome

    async def play(self, interrupted: asyncio.Event) -> None:
        """Play to the end of the world's length; raises ``KeyboardInterrupt`` when interrupted."""
        began_s = time.monotonic()
        board = Board(self.world.options, quiet=self._options.quiet)
        async with await Bus.at_home(self._home, name="apportion demo", create=True) as bus:
            service = SchedulerService(bus.events, bus.decisions, bus.publisher, DiskSnapshots(self._home.snapshots))
            service.on_batch(self._on_batch)
            running = asyncio.create_task(service.run())
            running.add_done_callback(self._on_end)
            try:
                await self._projector.start()
                with board:
                    await service.ready.wait()
                    await self._minutes(bus, service, board, interrupted)
                    service.stop()
                    await running
                    await self._verifier.start()  # unless it has
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    await self._catch_up(service.core.seq, board, interrupted)
            finally:
                service.stop()
                await asyncio.gather(running, return_exceptions=True)
                for follower in self._followers:
                    await follower.end()
            last = service.core.last_batch
            assert last is not None
            self._outcome = self._summary(service, last, time.monotonic() - began_s)

    async def _minutes(self, bus: Bus, service: SchedulerService, board: Board, interrupted: asyncio.Event) -> None:
        world = self.world
        end_ms = world.options.start_ms + world.options.length_ms
        number = published = 0
        while world.now_ms < end_ms and not interrupted.is_set():
            number += 1
            events = world.advance(world.now_ms + CYCLE_MS)
            events.append(tick_event(world.now_ms, number))
            published += len(events)
            batch = self._batch = asyncio.get_running_loop().create_future()
            await bus.connection.write(
                [publish_command(event.subject.encode(), b"", b"", event.body) for event in events]
            )
            if not batch.done():
                await asyncio.wait_for(batch, ANSWER_S)
            last = service.core.last_batch
            if last is None or last.seq != published:
                raise ApportionError(
                    f"{published} events were published by cycle {number}, but its tick is seq {last.seq if last else 0}: "
                    "the connection lost some, or somebody else publishes here; play again, in a directory of its own"
                )
            world.react(last)
            if number == VERIFY_FROM:
                await self._verifier.start()  # later than the first cycles: what they compiled, it only loads
            for follower in self._followers:
                follower.check()
            board.show(world.now_ms, published, number, [follower.progress.seq for follower in self._followers])

    def _on_batch(self, batch: StoredBatch) -> None:
        if self._batch is not None and not self._batch.done():
            self._batch.set_result(batch)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """The service has ended: whoever waits for a batch must learn why."""
        if self._batch is None or self._batch.done():
            return
        error = None if task.cancelled() else task.exception()
        self._batch.set_exception(error or ApportionError("the core was stopped before the play was over"))

    async def _catch_up(self, seq: int, board: Board, interrupted: asyncio.Event) -> None:
        """Wait until both followers have answered ``seq``."""
        for follower in self._followers:
            follower.finish_at(seq)
        while not all(follower.progress.done for follower in self._followers):
            for follower in self._followers:
                follower.check()
            if interrupted.is_set():
                raise KeyboardInterrupt
            board.show(self.world.now_ms, seq, 0, [follower.progress.seq for follower in self._followers])
            await asyncio.sleep(0.05)

    def _summary(self, service: SchedulerService, last: CycleBatch, played_s: float) -> Outcome:
        verifier, projector = self._verifier.progress, self._projector.progress
        ok = verifier.done and verifier.digest == service.core.digest() and verifier.cycles == service.core.cycle
        mine = resource.getrusage(resource.RUSAGE_SELF)
        options = self._options
        return Outcome(
            source=f"trace {options.trace}" if options.trace is not None else f"generator, seed {options.seed}",
            length_ms=self.world.options.length_ms,
            events=service.core.seq,
            cycles=service.core.cycle,
            last_batch=last,
            asked=self.world.asked,
            complaints=tuple(self.world.complaints),
            verify={"ok": ok, "cycles": verifier.cycles, "digest": verifier.digest},
            rss_mb={
                "play": mine.ru_maxrss // 1024,
                "verifier": verifier.rss_mb,
                "projector": projector.rss_mb,
                "server": _peak_rss_mb(self._server.pid),
            },
            cpu_s={
                "play": round(mine.ru_utime + mine.ru_stime, 1),
                "verifier": verifier.cpu_s,
                "projector": projector.cpu_s,
                "server": _cpu_s(self._server.pid),
            },
            played_s=played_s,
        )


def _peak_rss_mb(pid: int) -> int:
    """Return the peak memory of a process, 0 where the system does not tell."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return 0


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds, 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)
    except (OSError, IndexError, ValueError):
        return 0.0
