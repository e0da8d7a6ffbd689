"""A proof of a part of the log: its stretches proved side by side, and put together in the order of the log.

``prove`` decides what is proved where; the result is the same however many workers there are and whichever is done first: the
first difference is the earliest of the log. While workers derive, this process goes ahead by trusting where states to cut at are
missing. A state made so that does not come out of the stretch before it is a difference like any other.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from typing import Any

import msgspec

from apportion.adapters.past.driving import OnProgress, Progress
from apportion.adapters.proving.ahead import state_ahead
from apportion.adapters.proving.stretch import (
    SLOTS,
    WANTED,
    Open,
    Point,
    Proved,
    Stretch,
    join_as_process,
    prove_stretch,
    work,
)
from apportion.adapters.proving.waypoints import LEAST_RECORDS, Cut, Waypoint, plan
from apportion.core.errors import ApportionError

POLL_S = 0.1
AHEAD = "made ahead by trusting the stored decisions"


class WorkerDied(ApportionError):
    """A worker process ended without an answer."""


class NotProved(ApportionError):
    """A stretch could not be looked at: the logs cannot be read, or a state cannot be used."""


class _Unwanted(Exception):
    """Nobody needs a state there any more."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was proved: ``start`` was taken on trust, unless it is the empty state before the first record."""

    start: Point
    end: Point
    start_source: str
    cycles: int
    undecided: int
    decisions_sha256: str  # over the sha256 of each proved batch, in order
    first_difference: dict[str, Any] | None
    stretches: int
    workers: int
    wall_ms: int

    @property
    def ok(self) -> bool:
        """Everything was derived to the same bytes."""
        return self.first_difference is None


def processes(workers: int, board: Any) -> Executor:
    """Return a pool of processes that know the board."""
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=join_as_process, initargs=(board,))


async def prove(
    open_: Open,
    start: Waypoint,
    waypoints: Sequence[Waypoint],
    to_seq: int,
    workers: int,
    progress: OnProgress | None = None,
    *,
    least_records: int = LEAST_RECORDS,
    pool: Callable[[int, Any], Executor] = processes,
) -> Proof:
    """Prove from ``start`` (sequence 0 with no data: the first record) up to ``to_seq``.

    No stretch is shorter than ``least_records``, so a short range is proved in this process. Raises
    ``WorkerDied``, ``NotProved``, and what the logs raise in this process.
    """
    began = time.monotonic()
    workers = max(1, min(workers, (to_seq - start.seq) // least_records))
    if workers == 1:
        alone = Stretch(0, start.seq, to_seq, start.data or None, start.source)
        done = [await prove_stretch(open_, alone, progress)]
    else:
        cuts = plan(start, waypoints, to_seq, workers, least_records)
        done = await _Side(open_, cuts, to_seq, partial(pool, workers)).run(progress)
    return _together(done, to_seq, workers, int((time.monotonic() - began) * 1000))


def _together(done: Sequence[Proved], to_seq: int, workers: int, wall_ms: int) -> Proof:
    """Go through the stretches in the order of the log, up to the first thing that is wrong."""
    hashes, cycles, undecided = hashlib.sha256(), 0, 0
    first, end, wrong = done[0], done[0].end, None
    used = 0
    for proved in done:
        if proved.error:
            raise NotProved(proved.error)
        if proved.stopped or proved.start is None or proved.end is None or first.start is None:
            raise NotProved(f"stretch {proved.number} was stopped although nothing before it is wrong; report it")
        if used and end is not None and end.digest != proved.start.digest:
            wrong = _wrong_state(end, proved)
            break
        hashes.update(proved.hashes)
        cycles, undecided, end, wrong, used = cycles + proved.cycles, proved.undecided, proved.end, proved.difference, used + 1
        if wrong is not None:
            break
    if first.start is None or end is None or (wrong is None and end.seq != to_seq):
        raise NotProved(f"nothing is wrong up to seq {end.seq if end else 0:,}, but nobody looked further; report it")
    return Proof(
        start=first.start,
        end=end,
        start_source=first.source,
        cycles=cycles,
        undecided=undecided,
        decisions_sha256=hashes.hexdigest(),
        first_difference=wrong,
        stretches=len(done),
        workers=workers,
        wall_ms=wall_ms,
    )


def _wrong_state(reached: Point, proved: Proved) -> dict[str, Any]:
    detail = (
        f"the state kept here ({proved.source}) is not the one that the log derives to: it was changed or is of another log, or "
        "both logs were written anew after it was made"
    )
    kept = proved.start.digest if proved.start is not None else ""
    return {
        "what": "snapshot", "seq": reached.seq, "time_ms": reached.time_ms, "cycle": reached.cycle, "detail": detail,
        "stored": kept, "derived": reached.digest,
    }  # fmt: skip


class _Side:
    """Stretches side by side: workers that derive, and this process ahead of them."""

    def __init__(self, open_: Open, cuts: list[Cut], to_seq: int, pool: Callable[[Any], Executor]) -> None:
        self._open, self._cuts, self._to_seq = open_, cuts, to_seq
        self._board = get_context("spawn").RawArray("q", 1 + SLOTS * len(cuts))
        self._board[WANTED] = len(cuts)
        self._pool = pool(self._board)
        self._futures: list[Future[Proved]] = []

    async def run(self, progress: OnProgress | None) -> list[Proved]:
        """Return what came of the stretches up to the first that is wrong. Raises ``WorkerDied``."""
        watcher = asyncio.create_task(self._watch(progress))
        try:
            ahead = asyncio.create_task(self._ahead())
            done: list[Proved] = []
            try:
                await self._collect(ahead, done)
            finally:
                ahead.cancel()
                with suppress(asyncio.CancelledError, Exception):  # what it met counts only where it is missed
                    await ahead
            return done
        except BrokenProcessPool:
            raise WorkerDied(
                "a process that verified a part of the log ended without an answer (killed, or out of memory?): nothing is "
                "proved; run it again, with fewer --workers when memory is short"
            ) from None
        finally:
            self._board[WANTED] = -1  # whoever still works may stop
            watcher.cancel()
            self._pool.shutdown(wait=True, cancel_futures=True)

    async def _collect(self, ahead: asyncio.Task[None], done: list[Proved]) -> None:
        """Take results in the order of the log until one is wrong; later stretches are then no longer wanted."""
        while True:
            while len(done) == len(self._futures):
                if ahead.done():
                    ahead.result()
                    if len(done) == len(self._futures):
                        return
                    break
                await asyncio.sleep(POLL_S / 10)
            proved = await asyncio.wrap_future(self._futures[len(done)])
            done.append(proved)
            if proved.difference is not None or proved.error:
                return

    async def _ahead(self) -> None:
        """Hand out the stretches in order; where a state is missing, make it by trusting from the one before."""
        made: bytes | None = None
        async with self._open() as logs:
            for position, cut in enumerate(self._cuts):
                if cut.waypoint is not None:
                    snapshot, source = cut.waypoint.data or None, cut.waypoint.source
                elif made is not None:
                    snapshot, source = made, AHEAD
                else:
                    continue  # the way to it does not hold: who derives that way will name what is wrong there
                made = None
                self._submit(Stretch(position, cut.from_seq, cut.to_seq, snapshot, source))
                if position + 1 == len(self._cuts) or self._cuts[position + 1].waypoint is not None:
                    continue
                with suppress(ApportionError, _Unwanted):
                    made = await state_ahead(logs, snapshot, cut.to_seq, self._stop)

    def _submit(self, stretch: Stretch) -> None:
        future = self._pool.submit(work, self._open, stretch)
        future.add_done_callback(self._note)
        self._futures.append(future)

    def _note(self, future: Future[Proved]) -> None:
        """What comes after something wrong is no longer wanted."""
        if future.cancelled() or future.exception() is not None:
            return
        proved = future.result()
        if proved.difference is not None or proved.error:
            self._board[WANTED] = min(self._board[WANTED], proved.number)

    def _stop(self, _at: Progress) -> None:
        if self._board[WANTED] < len(self._cuts):
            raise _Unwanted

    async def _watch(self, progress: OnProgress | None) -> None:
        """Show how far all of them are together."""
        if progress is None:
            return
        start_seq = self._cuts[0].from_seq
        while True:
            events = sum(self._board[1::SLOTS])
            progress(Progress(events, 0, start_seq + events, self._to_seq, max(self._board[2::SLOTS])))
            await asyncio.sleep(POLL_S)
