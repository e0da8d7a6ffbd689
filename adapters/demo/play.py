"""The demo: a simulated cluster under load, played through a real nats-server in stated time.

Decides how simulated time passes: per simulated minute the world's events and a tick are written to the server at once,
without acknowledgements; the sequence of the tick, in the batch that answers it, tells that all were stored. Then the
world is given that batch. The scheduler is the production ``SchedulerService`` in this process; two followers
(``followers``) derive every decision again and fill the projection, each in its own process, while the play goes on. What
it returns is a pure function of trace or seed, options and this program, but for the times and sizes of processes: equal
seeds give equal bytes in EVENTS and in DECISIONS. The server runs with relaxed syncing, which only a log that can be
played again may have.

Where the time goes (the real week: 709,735 events, 10,080 cycles): this process is the long pole, two fifths of all
processor time, and of that a half is ``Core`` (folding a quarter, deciding a quarter), the rest reading, writing and the
world; the verifier needs a quarter, projector and server the rest. So verifying and projecting while playing costs no wall
time on two cores; doing it afterwards would add both. What helped, by profile: no acknowledgement per event (a third of
this process), one write per minute, followers in steps of a second instead of cycle by cycle (half of each follower), the
kernels compiled before by a process that ends (``rehearsal``), so that none of these holds a compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from apportion.adapters.bus.connection import publish_command
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.demo import realtime
from apportion.adapters.demo.measure import cpu_s, peak_rss_mb
from apportion.adapters.demo.outcome import Outcome
from apportion.adapters.demo.progress import Board
from apportion.adapters.demo.report import build
from apportion.adapters.demo.setting import MARK, DemoOptions, DemoRefused, claim, story
from apportion.adapters.demo.troupe import Follower
from apportion.adapters.past.snapshots import DiskSnapshots
from apportion.adapters.processes.compiling import compile_kernels, is_needed
from apportion.adapters.processes.home import Home
from apportion.adapters.service.scheduler import SchedulerService
from apportion.adapters.service.warming import warm_horizon
from apportion.adapters.simulation.stated import tick_event
from apportion.adapters.simulation.world import World
from apportion.adapters.text import render
from apportion.core.decisions import CycleBatch
from apportion.core.envelope import StoredBatch
from apportion.core.errors import ApportionError

__all__ = ["DemoOptions", "DemoRefused", "play", "run_demo"]

CYCLE_MS = 60_000
VERIFY_FROM = 120  # cycles; before there is little to derive
ANSWER_S = 300.0  # no cycle takes so long, not even one that compiles


async def play(options: DemoOptions) -> dict[str, Any]:
    """Play the demo and return its report; see ``report.build`` for the keys.

    Leaves the directory as an installation whose server is stopped. Raises ``DemoRefused``; ``KeyboardInterrupt`` after
    everything was ended cleanly; ``ApportionError`` when the core, a follower or the server failed.
    """
    began_s = time.monotonic()
    jobs, world_options = story(options)
    home = claim(options)
    await _compiled(options)
    if options.realtime:
        await asyncio.to_thread(warm_horizon)  # loads what is compiled, before the server waits for who does
    server = EmbeddedServer(home, sync="relaxed")
    await asyncio.to_thread(server.start)
    try:
        stage = _Stage(options, home, server, World(jobs, world_options))
        with _interruptible() as interrupted:
            await stage.play(interrupted)
        document = await asyncio.to_thread(build, home, stage.outcome())
        if options.realtime:
            (curve,) = world_options.curves
            document["realtime"] = await asyncio.to_thread(realtime.build, home, curve.pool, curve.name)
        document["wall_s"] = round(time.monotonic() - began_s, 1)
        (home.root / MARK).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return document
    finally:
        await asyncio.to_thread(server.stop)


async def _compiled(options: DemoOptions) -> None:
    """Have the kernels compiled before play and verifier would each do it, and say so: it takes longer than most plays."""
    if not is_needed(plans=options.realtime):
        return
    say = (lambda _text: None) if options.quiet else _say
    say("compiling kernels, once per version: ")
    say(f"{await compile_kernels(plans=options.realtime):.0f} s\n")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def run_demo(options: DemoOptions) -> dict[str, Any]:
    """Play the demo from code that is not asynchronous; see ``play``."""
    return asyncio.run(play(options))


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
                    ready = asyncio.create_task(service.ready.wait())
                    await asyncio.wait((ready, running), return_when=asyncio.FIRST_COMPLETED)
                    ready.cancel()
                    if running.done():
                        await running
                    await self._minutes(bus, service, board, interrupted)
                    service.stop()
                    await running
                    if interrupted.is_set():
                        self._say_stopped(service.core.seq)
                        raise KeyboardInterrupt
                    await self._verifier.start()  # unless it has
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
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await batch
                except TimeoutError:
                    raise ApportionError(
                        f"cycle {number} was not answered within {ANSWER_S:.0f} s: the connection lost some of its {len(events)} "
                        "events, or this machine is too busy; play again"
                    ) from None
            last = service.core.last_batch
            if last is None or last.seq != published:
                raise ApportionError(
                    f"{published} events were published by cycle {number}, but its tick is seq {last.seq if last else 0}: "
                    "the connection lost some, or somebody else publishes here; play again, in a directory of its own"
                )
            world.react(last)
            if number == VERIFY_FROM:
                await self._verifier.start()
            for follower in self._followers:
                follower.check()
            board.show(world.now_ms, published, number, [follower.progress.seq for follower in self._followers])

    def _say_stopped(self, seq: int) -> None:
        if not self._options.quiet:
            sys.stderr.write(
                f"stopped at {render.when(self.world.now_ms)}, seq {seq:,}; what was played is whole: "
                f"apportion verify --dir {self._home.root}\n"
            )

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
                "server": peak_rss_mb(self._server.pid),
            },
            cpu_s={
                "play": round(mine.ru_utime + mine.ru_stime, 1),
                "verifier": verifier.cpu_s,
                "projector": projector.cpu_s,
                "server": cpu_s(self._server.pid),
            },
            played_s=played_s,
        )
