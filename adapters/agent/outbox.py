"""Reports that are not acknowledged yet: on disk from the moment they are due until the log has them.

A report is put once under a name (``run.finished`` of a run has one), keeps its id over every resend and restart, and
leaves only when the publish was acknowledged. Order is kept: the next is sent when the one before is stored. Ids are a
keyed hash of the name: the same report is the same event to the log's deduplication, and nobody without the agent's
secret can publish under that id first.

It must never drop a report because a server is away, and never invent one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from apportion.adapters.agent import shim
from apportion.core.envelope import subject_of
from apportion.core.events import EVENT_TYPES, Event, encode_event

Publish = Callable[[str, bytes, str], Awaitable[int]]  # subject, body, id -> stored sequence


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One report as it lies on disk. ``body`` is the envelope's JSON."""

    name: str
    event_id: str
    subject: str
    body: msgspec.Raw


class Outbox:
    """The unacknowledged reports of one agent, oldest first."""

    def __init__(self, folder: Path, principal: str, secret: bytes) -> None:
        """Open the folder and read what an earlier agent left in it."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._principal = principal
        self._secret = secret
        self._entries: dict[str, tuple[Path, Entry]] = {}
        self._next = 1
        for path in sorted(folder.glob("*.json")):
            entry = msgspec.json.decode(path.read_bytes(), type=Entry)
            self._entries[entry.name] = (path, entry)
            self._next = int(path.stem) + 1

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        """Return the names of what waits, oldest first."""
        return list(self._entries)

    def event_id(self, name: str) -> str:
        """Return the id of the report called ``name``: always the same, and not to be guessed."""
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()[:32]

    def put(self, name: str, event: Event, *, at_ms: int, cause: str = "") -> None:
        """Keep ``event`` durably until it is acknowledged. A name that already waits keeps its first content."""
        if name in self._entries:
            return
        event_id = self.event_id(name)
        entry = Entry(
            name=name,
            event_id=event_id,
            subject=subject_of(self._principal, EVENT_TYPES[type(event)]),
            body=msgspec.Raw(encode_event(event, event_id=event_id, at_ms=at_ms, cause=cause)),
        )
        path = self._folder / f"{self._next:012d}.json"
        shim.write_durably(str(path), msgspec.json.encode(entry))
        self._entries[name] = (path, entry)
        self._next += 1

    def drop(self, name: str) -> None:
        """Forget a report that has become pointless (the core closed the run by itself)."""
        found = self._entries.pop(name, None)
        if found is not None:
            found[0].unlink(missing_ok=True)

    async def send_oldest(self, publish: Publish) -> tuple[str, int]:
        """Publish the oldest report and take it off the disk when it is stored; return its name and sequence.

        Errors of ``publish`` leave everything as it was. There must be a report.
        """
        name, (path, entry) = next(iter(self._entries.items()))
        seq = await publish(entry.subject, bytes(entry.body), entry.event_id)
        path.unlink(missing_ok=True)
        self._entries.pop(name, None)
        return name, seq
