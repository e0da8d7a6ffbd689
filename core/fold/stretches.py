"""Long stretches of the log, folded by one kernel: columns of records, and the stored batches that answer their ticks.

``Batches`` are stored batches as the kernel takes them. ``Stretches`` lends the state to ``kernels.stretch``, and tells where that
stopped; what it stopped at goes the slow way, by whoever called, and then it goes on. The state is that of folding record by
record and batch by batch, but for the chain over the records, which is taken from the batches: they are trusted. The heads and the
books of all of them are compared, and the accounts are checked after each, as ever; the state is not hashed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from apportion.core import ledger
from apportion.core.decisions import PoolBooks, decode_batch
from apportion.core.envelope import StoredBatch, encode, split_subject
from apportion.core.errors import ApportionError, Divergence, LogGap
from apportion.core.fold.beats import UNREADABLE
from apportion.core.fold.columns import Columns
from apportion.core.fold.doors import Doors
from apportion.core.fold.lane import Lane
from apportion.core.fold.lending import Lending
from apportion.core.kernels import effects, stretch
from apportion.core.state.state import State
from apportion.core.units import MAX_TIME_MS

_KINDS = {
    "workload.submitted": stretch.SUBMITTED,
    "run.started": stretch.STARTED,
    "run.finished": stretch.FINISHED,
    "clock.tick": stretch.TICK,
}
SPEAKERS_MOST = 65_536  # remembered


class _Chained(msgspec.Struct, frozen=True, gc=False):
    chain: str


_chain_decoder = msgspec.json.Decoder(_Chained)


class Batches:
    """Stored batches in their order; ``taken`` of them are folded, and of the next one the first ``done`` decisions.

    Those from ``most`` on are not for the kernel: they are to be trusted one by one.
    """

    def __init__(self, batches: Sequence[StoredBatch], most: int) -> None:
        self.batches = batches
        self.most = most
        self.taken = self.done = 0
        lengths = np.array([len(batch.body) for batch in batches], dtype=np.int64)
        self.table = np.zeros((3, len(batches)), dtype=np.int64)  # the tick it answers, where its bytes begin and end
        self.table[0] = [batch.input_seq for batch in batches]
        self.table[2] = np.cumsum(lengths)
        self.table[1] = self.table[2] - lengths
        self.data = np.frombuffer(bytearray(b"".join(batch.body for batch in batches)), dtype=np.uint8)

    def next(self) -> StoredBatch | None:
        """Return the next one."""
        return self.batches[self.taken] if self.taken < len(self.batches) else None

    def took(self) -> None:
        """The next one is folded, whole."""
        self.taken, self.done = self.taken + 1, 0


class Stretches:
    """Folds stretches into one state."""

    def __init__(self, state: State, lane: Lane) -> None:
        self._state = state
        self._lane = lane
        self._lending: Lending | None = None
        self.doors = Doors(state)
        self._columns: Columns | None = None
        self._told: dict[tuple[str, str], tuple[int, int, int, int]] = {}

    def _told_of(self, subject: str, node: str) -> tuple[int, int, int, int] | None:
        """Return what ``Columns.introduce`` asks of a subject; None when it is not for the kernel, or its principal is new.

        What is found is remembered: columns follow each other, and the same hundreds speak in all of them.
        """
        known = self._told.get((subject, node))
        if known is not None:
            return known
        found = self._found_of(subject, node)
        if found is not None:
            if len(self._told) == SPEAKERS_MOST:
                self._told.clear()
            self._told[subject, node] = found
        return found

    def _found_of(self, subject: str, node: str) -> tuple[int, int, int, int] | None:
        found = self._lane.subjects.told_of(subject, node)
        if found is not None:
            return found
        parts = split_subject(subject)
        if parts is None or parts[1] not in _KINDS or parts[0] not in self._state.principal.row_of:
            return None
        return _KINDS[parts[1]], self._state.principal.row_of[parts[0]], 0, 0

    def fold(self, columns: Columns, start: int, batches: Batches, retention_ms: int, changes_ms: int, prune_ms: int) -> int:
        """Fold from position ``start`` on, batches too; returns the first position left to the slow way.

        With a tick pending afterwards, its batch is: from decision ``batches.done`` on. The times are those of ``engine``: for how
        long the ids of workloads and of changes are kept, and how often that is looked at. Raises ``LogGap``, ``Divergence``
        where the books of a batch are not those of the state, ``InvariantBroken`` where the accounts do not add up.
        """
        state, index = self._state, start
        if columns.first_seq + start != state.counters.seq + 1:
            raise LogGap(state.counters.seq + 1, columns.first_seq + start)
        if self._lending is None:
            self._lending = Lending(state, *self._lane.indexes())
        lending = self._lending
        if not lending.may_lend():
            return start
        if columns is not self._columns:
            self._columns = columns
            columns.introduce(self._told_of)
        if self.doors.planned_ms != state.counters.planned_ms:
            self.doors.shut()
        made_ms = state.change.column("made_ms")[state.change.column("key_code") != 0]
        lending.n[effects.RETENTION_MS], lending.n[effects.PRUNE_EVERY_MS] = retention_ms, prune_ms
        lending.n[effects.CHANGES_UNTIL_MS] = int(made_ms.min()) + changes_ms if len(made_ms) else MAX_TIME_MS
        return self._run(lending, columns, index, batches)

    def _run(self, lending: Lending, columns: Columns, start: int, batches: Batches) -> int:
        """Lend the state to the kernel, until it stops at what it cannot be taught; returns the position reached."""
        state, n, index, taken = self._state, lending.n, start, batches.taken
        world = lending.lend()
        n[effects.BATCH], n[effects.BATCHES], n[effects.WHY] = taken, batches.most, stretch.END
        try:
            while index < columns.count:
                self._lane.subjects.sync()
                columns.text = self._lane.subjects.text
                index = stretch.fold(
                    n, world, self._lane.numbers(), columns.data, columns.told, columns.speakers, index, columns.count,
                    columns.text, batches.data, batches.table, self.doors.answers, self.doors.names, self.doors.slots,
                )  # fmt: skip
                if n[effects.WHY] != stretch.RECORD or not self._learned(columns, index):
                    break
        finally:
            why = int(n[effects.WHY])
            lending.take(tick_pending=why in (stretch.BATCH, stretch.BROKEN))
        batches.taken, batches.done = int(n[effects.BATCH]), int(n[effects.DECISION]) if why == stretch.BATCH else 0
        if why == stretch.BOOKS:  # others, or the same in another spelling
            stored, reached_books = self._books_of(batches.batches[batches.taken]), ledger.books(state)
            if stored != reached_books:
                raise Divergence(state.counters.seq, "books", encode(stored).decode(), encode(reached_books).decode())
            batches.took()
        if batches.taken > taken:
            self._chain(batches.batches[batches.taken - 1])
        if why == stretch.BROKEN:
            ledger.check_conservation(state)
            raise ApportionError(f"at seq {state.counters.seq} the accounts do not add up, their check finds nothing: report it")
        return index

    def _learned(self, columns: Columns, index: int) -> bool:
        """Tell whether the kernel can now go on with the record at which it stopped. Looks at nothing that is lent but what
        the doors of pools depend on, which no record that the kernel takes has changed.
        """
        if columns.kind(index) == stretch.SUBMITTED:
            record = columns.record(index)
            return self.doors.learn(record, self._state.principal.row_of[record.subject.split(".")[2]])
        return not columns.kind(index) and columns.introduce(self._told_of, index)

    def _books_of(self, batch: StoredBatch) -> tuple[PoolBooks, ...]:
        try:
            return decode_batch(batch.body).books
        except UNREADABLE as error:
            raise Divergence(self._state.counters.seq, "a stored batch, it cannot be decoded", str(error), "") from error

    def _chain(self, batch: StoredBatch) -> None:
        """Take the chain over the records from the last batch that was folded; frames made before it are in it."""
        self._state.chain = bytes.fromhex(_chain_decoder.decode(batch.body).chain)
        self._state.unchained.clear()
