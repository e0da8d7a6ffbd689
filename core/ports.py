"""The ports of the core: what the world must provide. Typing only; implementations live in ``adapters``.

Each port has one contract test class, run over memory, NATS and archive alike.
"""

from __future__ import annotations

from typing import Protocol

from apportion.core.envelope import Record, StoredBatch


class EventLog(Protocol):
    """The one total order. Reading is gap-free: ``read`` returns seq after+1, after+2, ... without holes."""

    async def last_seq(self) -> int:
        """Return the sequence of the newest record, 0 when empty."""
        ...

    async def read(self, after_seq: int, limit: int) -> list[Record]:
        """Return up to ``limit`` records after ``after_seq``; an empty list means the end was reached.

        Raises ``LogGap`` when a sequence is missing, ``LogMismatch`` when ``after_seq`` is beyond the log.
        """
        ...


class DecisionLog(Protocol):
    """The single-writer stream of CycleBatches."""

    async def last_seq(self) -> int:
        """Return the sequence of the newest batch, 0 when empty."""
        ...

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        """Return up to ``limit`` batches after ``after_seq``."""
        ...

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Append one batch iff the log still ends at ``expected_last_seq``; return its sequence.

        A lost acknowledgement is resolved by reading the tail: identical bytes at ``expected_last_seq + 1`` are ours
        (or an equal core's, which is the same thing). Other bytes raise ``Fenced``.
        """
        ...


class SnapshotStore(Protocol):
    """Immutable snapshots by input sequence."""

    def save(self, seq: int, data: bytes) -> None:
        """Keep ``data`` for ``seq`` durably; keeps the previous ones by its own retention rule."""
        ...

    def load(self, max_seq: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest snapshot at or before ``max_seq``, or None."""
        ...
