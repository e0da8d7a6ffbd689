"""One stretch of the log, proved: from a state, each cycle is derived again and compared with the stored one.

A pure function of the state to begin with and of the two logs; runs in whichever process is asked to. What it returns can be
carried between processes: an error comes back as words, so that it cannot break the pool that carries it. It never writes a log.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from apportion.adapters.past import replaying, verifying
from apportion.adapters.past.driving import OnProgress, Progress
from apportion.core.errors import ApportionError

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.envelope import StoredBatch
    from apportion.core.ports import DecisionLog, EventLog


class Opened(Protocol):
    """Both logs, open."""

    @property
    def events(self) -> EventLog:
        """EVENTS."""
        ...

    @property
    def decisions(self) -> DecisionLog:
        """DECISIONS."""
        ...


Open = Callable[[], AbstractAsyncContextManager[Opened]]  # can be pickled: each process opens the logs for itself


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A state by its marks. ``chain`` is closed at ticks: ``open_records`` were read since, and are not in it yet."""

    seq: int
    time_ms: int
    cycle: int
    digest: str
    chain: str
    open_records: int
    open_ms: int  # time of the first of them
    log_id: str


class Stretch(msgspec.Struct, frozen=True):
    """What is to be proved: from the state in ``snapshot`` (None: the first record) up to record ``to_seq``."""

    number: int  # in order of the log, from 0
    from_seq: int
    to_seq: int
    snapshot: bytes | None
    source: str  # of the snapshot, in words


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a stretch. ``hashes`` are 32 bytes per cycle: sha256 of each stored batch that is equal to the derived one."""

    number: int
    source: str
    start: Point | None = None
    end: Point | None = None
    cycles: int = 0
    undecided: int = 0  # 1 when the last tick's batch was not written yet
    hashes: bytes = b""
    difference: dict[str, Any] | None = None
    error: str = ""  # why nothing can be said
    stopped: bool = False  # another stretch, earlier in the log, is wrong already


class Stopped(Exception):
    """It is no longer asked for."""


def point_of(core: Core) -> Point:
    """Return the marks of a core's state."""
    state = core.state
    return Point(
        seq=core.seq,
        time_ms=core.time_ms,
        cycle=core.cycle,
        digest=core.digest(),
        chain=state.chain.hex(),
        open_records=len(state.unchained),
        open_ms=int(state.unchained.pieces[0].split(b" ", 2)[1]) if state.unchained else 0,
        log_id=state.log_id,
    )


async def prove_stretch(open_: Open, stretch: Stretch, progress: OnProgress | None = None) -> Proved:
    """Prove a stretch. Raises ``Stopped`` when ``progress`` does; whatever is wrong is in what it returns."""
    number, source = stretch.number, stretch.source
    hashes = bytearray()

    def same(batch: StoredBatch) -> None:
        hashes.extend(hashlib.sha256(batch.body).digest())

    try:
        core = replaying.core_from(stretch.snapshot)
        start, at = point_of(core), Progress()
        async with open_() as logs:
            difference = await verifying.derive(
                core, logs.events, logs.decisions, stretch.to_seq, at, progress, same=same
            )
    except ApportionError as error:
        return Proved(number=number, source=source, error=str(error))
    except ValueError as error:
        return Proved(number=number, source=source, error=str(error))
    return Proved(
        number=number,
        source=source,
        start=start,
        end=point_of(core),
        cycles=at.cycles,
        undecided=int(core.tick_pending),
        hashes=bytes(hashes),
        difference=difference,
    )


# -- in a worker process -----------------------------------------------------------------------------------------------

_board: Any = None  # shared with whoever asked: how far each stretch is, and which of them are still wanted

WANTED = 0  # place on the board of the number of the last stretch that is wanted
SLOTS = 2  # places per stretch after that: records done, time reached


def join(board: Any) -> None:
    """Begin as a worker."""
    from apportion.adapters.processes.build import keep_kernels_apart

    global _board
    keep_kernels_apart()
    _board = board


def join_as_process(board: Any) -> None:
    """Begin as a worker that is a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked is interrupted too, and says so
    join(board)


def work(open_: Open, stretch: Stretch) -> Proved:
    """Prove a stretch in this worker, telling the board."""
    place = 1 + SLOTS * stretch.number

    def progress(at: Progress) -> None:
        _board[place], _board[place + 1] = at.events, at.time_ms
        if _board[WANTED] < stretch.number:
            raise Stopped

    try:
        return asyncio.run(prove_stretch(open_, stretch, progress))
    except Stopped:
        return Proved(number=stretch.number, source=stretch.source, stopped=True)
    except Exception as error:  # whatever it is, it must reach the one who asked in words
        if hasattr(error, "what"):
            return Proved(number=stretch.number, source=stretch.source, error=str(error))
        return Proved(number=stretch.number, source=stretch.source, error=f"{type(error).__name__}: {error}")
