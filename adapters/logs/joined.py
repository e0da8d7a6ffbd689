"""One log in two places: what was cut from the live log is read from its archive, then the live log goes on.

``JoinedEventLog`` and ``JoinedDecisionLog`` are the ports over both. The live log is asked first, always: while nothing was cut
that is all there is to it, and nothing is opened. Only where it answers ``LogGap`` is the archive looked for (``Find``), once, and
from the sequence up to which it is to be read (``Behind.until_seq``) on the live log continues; both check that no sequence is
missing, so a hole between them cannot pass. A cut that happens while a reader runs is met in the same way.

They decide nothing and write nothing but what is committed to the live log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogGap, LogMismatch

FOLLOW_LIMIT = 10_000

T = TypeVar("T", bound="Record | StoredBatch")


class _Archived(Protocol[T]):
    """One kind of a log, archived."""

    async def read(self, after_seq: int, limit: int) -> list[T]:
        """Return what follows ``after_seq``."""
        ...

    def forget(self) -> None:
        """Let go of what is in memory."""
        ...


class _Tail(Protocol[T]):
    """A live reader."""

    async def take(self, limit: int, timeout_s: float | None = None) -> list[T]:
        """Return the next items."""
        ...

    def wake(self) -> None:
        """Let a waiting ``take`` return."""
        ...

    async def close(self) -> None:
        """Stop reading."""
        ...


class _Live(Protocol[T]):
    """One kind of a log, live."""

    async def last_seq(self) -> int:
        """Return the sequence of the newest item."""
        ...

    async def read(self, after_seq: int, limit: int) -> list[T]:
        """Return what follows ``after_seq``. Raises ``LogGap`` where that was cut."""
        ...

    def tail(self, after_seq: int) -> _Tail[T]:
        """Return an independent live reader."""
        ...

    async def close(self) -> None:
        """Stop reading."""
        ...


class _LiveEvents(_Live[Record], Protocol):
    async def body_at(self, seq: int) -> bytes | None:
        """Return the body at ``seq``, None when there is no such record."""
        ...


class _LiveDecisions(_Live[StoredBatch], Protocol):
    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Append one batch."""
        ...


@dataclass(frozen=True)
class Behind(Generic[T]):
    """The archive that holds what was cut, to be read up to ``until_seq``: the end of an item of both."""

    directory: Path
    log: _Archived[T]
    until_seq: int


Find = Callable[[int], Awaitable[Behind[T] | None]]
"""Looks for the archive of what a live log lost after a sequence. None: nothing was cut there. Raises ``LogMismatch`` when it was,
and no archive reaches it."""


class _Joined(Generic[T]):
    """See the module. ``read`` is for one caller at a time; every ``tail`` reads independently of the others."""

    def __init__(self, live: _Live[T], find: Find[T]) -> None:
        self._live = live
        self._find = find
        self._behind: Behind[T] | None = None
        self._looked = False

    async def last_seq(self) -> int:
        """Return the sequence of the newest item, 0 when empty; waits while the server is away."""
        return await self._live.last_seq()

    @property
    def seam_seq(self) -> int:
        """The sequence up to which the archive is read; 0 when no cut is known."""
        return 0 if self._behind is None else self._behind.until_seq

    async def behind(self) -> Behind[T] | None:
        """Return the archive of what was cut, None when nothing was. Raises ``LogMismatch`` when no archive reaches it."""
        self._behind = await self._find(0) or self._behind
        return self._behind

    async def archived(self, after_seq: int) -> Behind[T] | None:
        """Return the archive that has what follows ``after_seq``, None where the live log has it: for faster ways to read."""
        if not self._looked:
            self._looked = True
            await self.look_behind(after_seq)
        return self._behind if after_seq < self.seam_seq else None

    async def read(self, after_seq: int, limit: int) -> list[T]:
        """Return what follows ``after_seq``: ``limit`` items, or all there are; none at the end.

        Raises ``LogGap`` when one is missing, ``LogMismatch`` when ``after_seq`` is beyond the log or the archive is not whole.
        """
        items: list[T] = []
        while True:
            while len(items) < limit and (taken := await self.read_behind(after_seq, limit - len(items))):
                items += taken
                after_seq = taken[-1].seq
            if len(items) >= limit:
                return items
            try:
                return items + await self._live.read(after_seq, limit - len(items))
            except LogGap:  # cut there, perhaps once more since the archive was looked for
                if not await self.look_behind(after_seq):
                    raise

    async def read_behind(self, after_seq: int, limit: int) -> list[T]:
        """Return what the archive has after ``after_seq`` of what was cut, as far as that is known; none from there on."""
        behind = self._behind
        if behind is None or after_seq >= behind.until_seq:
            return []
        taken = [item for item in await behind.log.read(after_seq, limit) if item.seq <= behind.until_seq]
        if not taken:
            raise LogMismatch(f"{behind.directory} has nothing after seq {after_seq:,}, it must reach seq {behind.until_seq:,}")
        if taken[-1].seq >= behind.until_seq:
            behind.log.forget()
        return taken

    async def look_behind(self, after_seq: int) -> bool:
        """Look for an archive of what follows ``after_seq``; False when nothing was cut there: the gap is one."""
        if after_seq < self.seam_seq:
            return False  # it is known, and has been read
        found = await self._find(after_seq)
        self._behind = found or self._behind
        return found is not None and after_seq < found.until_seq

    def tail(self, after_seq: int) -> JoinedTail[T]:
        """Return an independent live reader from ``after_seq + 1`` on; close it after use."""
        return JoinedTail(self._live, type(self)(self._live, self._find), after_seq)

    async def follow(self, after_seq: int) -> AsyncGenerator[list[T], None]:
        """Yield items in lists as they arrive, without end."""
        tail = self.tail(after_seq)
        try:
            while True:
                if items := await tail.take(FOLLOW_LIMIT):
                    yield items
        finally:
            await tail.close()

    async def close(self) -> None:
        """Stop reading; the object may be used again."""
        await self._live.close()


class JoinedTail(Generic[T]):
    """A live reader that begins in the archive where the live log does not reach back far enough."""

    def __init__(self, live: _Live[T], joined: _Joined[T], after_seq: int) -> None:
        self._live = live
        self._joined = joined
        self._position = after_seq  # of the last item handed out
        self._tail = live.tail(after_seq)

    async def take(self, limit: int, timeout_s: float | None = None) -> list[T]:
        """Return the next items, at least one and at most ``limit``; none after ``timeout_s`` or a ``wake``."""
        items = await self._joined.read_behind(self._position, limit)
        if not items:
            try:
                items = await self._tail.take(limit, timeout_s)
            except LogGap:
                if not await self._joined.look_behind(self._position):
                    raise
                await self._tail.close()
                self._tail = self._live.tail(self._joined.seam_seq)
                items = await self._joined.read_behind(self._position, limit)
        if items:
            self._position = items[-1].seq
        return items

    def wake(self) -> None:
        """Let a waiting ``take``, or else the next one that waits, return at once."""
        self._tail.wake()

    async def close(self) -> None:
        """Stop reading."""
        await self._tail.close()


class JoinedEventLog(_Joined[Record]):
    """EVENTS, live and archived."""

    _live: _LiveEvents

    async def body_at(self, seq: int) -> bytes | None:
        """Return the body stored at ``seq``, None when there is no such record."""
        body = await self._live.body_at(seq)
        if body is not None or seq < 1:
            return body
        if seq > self.seam_seq and not await self.look_behind(seq - 1):
            return None
        return (await self.read_behind(seq - 1, 1))[0].body


class JoinedDecisionLog(_Joined[StoredBatch]):
    """DECISIONS, live and archived."""

    _live: _LiveDecisions

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Append one batch to the live log. Raises as its ``commit``."""
        return await self._live.commit(body, input_seq, expected_last_seq)
