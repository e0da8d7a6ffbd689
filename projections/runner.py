"""The projection: one DuckDB file that follows both streams, cycle by cycle.

::

    records up to a tick + the batch that answers it ──stage──▶ rows in memory ──commit──▶ rows and position, one transaction

Naive equivalent: for each record and each decision, run the SQL that it means. This does the same, but folds whole cycles
in memory, keeps open rows in memory (see ``sheet``), and writes each table once for many commits: a commit in between is one
row of the ``journal``. Results are equal because every row is a function of the sequence alone: cutting the input into other
commits gives the same tables, which the property tests check through ``digest``.

Records after the last decided tick are held back: what the core has not answered is not projected, and an event that it
refuses has no effect but its own row in the log. Whoever reads the streams calls this class; it never reads them itself,
never decides, and never repairs: a mismatch with the core's own chain, time or books stops it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb

from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import ApportionError, LogGap, LogMismatch
from apportion.projections import digest as logical
from apportion.projections.clock import LogClock
from apportion.projections.fingerprint import fingerprint, schema_files
from apportion.projections.folding import Folding
from apportion.projections.journal import Changes, Journal
from apportion.projections.sheet import Sheet

JOURNAL_ROWS = 20_000  # at most: some 33,000 events; what a restart brings up, and a reader waits for (0.1 s)


class ProjectionStale(ApportionError):
    """The file was built by other code or SQL, or by another DuckDB: rebuild it."""


class ProjectionBroken(ApportionError):
    """The file cannot be used any more (damaged, or the engine gave up): throw it away and rebuild."""


class Position(NamedTuple):
    """How far the projection is: everything up to ``seq`` (a decided tick) is in it."""

    seq: int = 0
    decision_seq: int = 0
    time_ms: int = 0
    tip: str = ""  # hash of the record at seq


class Staged(NamedTuple):
    """Rows of whole cycles, ready to be committed."""

    changes: Changes
    position: Position
    cycles: int


def tip_of(record: Record) -> str:
    """Return the hash by which a record at the cursor is recognised."""
    body = b"%d %b\n%b" % (record.seq, record.subject.encode("utf-8", "surrogatepass"), record.body)
    return hashlib.sha256(body).hexdigest()


class Projection:
    """One file. Not thread-safe: one caller at a time."""

    def __init__(self, path: str | Path = ":memory:") -> None:
        """Open or create the file.

        Raises ``ProjectionStale`` when it was built by other code, ``ProjectionBroken`` when DuckDB cannot read it.
        """
        self.path = str(path)
        self._folding = Folding()
        self._commits = Sheet(
            "meta.commit_log", "first_seq", "last_seq", "decision_seq", "time_ms", "records", "cycles", "chain", "tip", "stated",
        )  # fmt: skip
        self._journal = Journal((*self._folding.sheets, self._commits), self._folding.open)
        self.con = self._connect()
        try:
            self._prepare()
        except BaseException:
            self.con.close()
            raise

    # -- opening -------------------------------------------------------------------------------------------------------

    def _connect(self) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(self.path)
        except duckdb.Error as error:
            raise ProjectionBroken(f"{self.path}: DuckDB cannot open it ({error}); rebuild the projection") from error

    def _prepare(self) -> None:
        con = self.con
        try:
            con.execute("set TimeZone = 'UTC'")
            self._writer = con.cursor()
            self._writer.execute("pragma disable_optimizer")  # of this connection: its statements are plain inserts
            made = con.execute("select count(*) from duckdb_tables() where schema_name = 'meta' and table_name = 'projection'")
            if not (made.fetchone() or (0,))[0]:
                self._create()
            found = con.execute("select fingerprint, duckdb_version from meta.projection").fetchone()
        except duckdb.Error as error:
            raise ProjectionBroken(f"{self.path}: not a readable projection ({error}); rebuild it") from error
        if found != (fingerprint(), duckdb.__version__):
            raise ProjectionStale(f"{self.path} was built by other code or another DuckDB ({found}); rebuild the projection")
        for sheet in (*self._folding.sheets, *(rows.sheet for rows in self._folding.open), self._commits, self._journal.sheet):
            sheet.bind(con)
        self._load()

    def _create(self) -> None:
        self.con.execute("begin")
        for sql in schema_files():
            self.con.execute(sql)
        self.con.execute("insert into meta.projection values (?, ?)", [fingerprint(), duckdb.__version__])
        self.con.execute("commit")
        self.con.execute("checkpoint")  # schema changes do not belong into a write-ahead log that may have to be replayed

    def _load(self) -> None:
        """Take up the position and everything open; forget what was staged, and bring the tables up to the position."""
        con = self.con
        self._held: list[Record] = []
        self._batches: deque[StoredBatch] = deque()
        self._journal.load(con)
        self._bring_up()
        last = con.execute(
            "select last_seq, decision_seq, time_ms, tip, chain, stated from meta.commit_log order by last_seq desc limit 1"
        ).fetchone()
        self.position = self._staged = Position(*last[:4]) if last else Position()
        self._folding.clock = LogClock()
        if last:
            self._folding.clock = LogClock(True, last[5], self.position.time_ms, bytes.fromhex(last[4]))
        self._folding.load(con)

    def close(self) -> None:
        """Close the file; harmless when closed."""
        self._writer.close()
        self.con.close()

    def __enter__(self) -> Projection:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- what to read next ---------------------------------------------------------------------------------------------

    @property
    def wants_after_seq(self) -> int:
        """Sequence of the last record taken in, held back ones included: read EVENTS after it."""
        return self._held[-1].seq if self._held else self._staged.seq

    @property
    def wants_after_decision_seq(self) -> int:
        """Sequence of the last batch taken in: read DECISIONS after it."""
        return self._batches[-1].seq if self._batches else self._staged.decision_seq

    def check_tip(self, record: Record | None) -> None:
        """Compare the log's record at ``position.seq`` (None when the log has none) with the one projected.

        Raises ``LogMismatch``: the log is shorter than the cursor, or another log.
        """
        if self.position.seq == 0:
            return
        if record is None or record.seq != self.position.seq:
            raise LogMismatch(
                f"EVENTS has no record at seq {self.position.seq}, which is already projected into {self.path}; the log was cut: "
                "restore it from its archive, or rebuild the projection from the log as it is"
            )
        if tip_of(record) != self.position.tip:
            raise LogMismatch(
                f"the record at seq {record.seq} is not the one projected into {self.path}; the file belongs to another log: "
                "restore the right one, or rebuild the projection"
            )

    # -- ingest --------------------------------------------------------------------------------------------------------

    def ingest(self, records: Iterable[Record], batches: Iterable[StoredBatch]) -> int:
        """Take in records and batches, each in order and gap-free; commit every complete cycle; return how many.

        What was taken in before is dropped by its sequence. Raises ``LogGap``, ``LogMismatch``, ``Divergence``; then the
        projection stands at its position again and wants everything after it.
        """
        try:
            staged = self.stage(records, batches)
            return self.commit(staged) if staged is not None else 0
        except ProjectionBroken:
            raise
        except BaseException:
            self.recover()
            raise

    def recover(self) -> None:
        """Stand at the position again, after ``stage`` or ``commit`` has failed: what was staged or held back is forgotten."""
        self._load()

    def stage(self, records: Iterable[Record], batches: Iterable[StoredBatch]) -> Staged | None:
        """Fold complete cycles into rows without writing them; None when no cycle is complete.

        When it fails, ``recover`` must follow. It does not touch the file.
        """
        self._take_in(records, batches)
        return self._stage()

    def _take_in(self, records: Iterable[Record], batches: Iterable[StoredBatch]) -> None:
        seq = self.wants_after_seq
        for record in records:
            if record.seq == seq + 1:
                self._held.append(record)
                seq += 1
            elif record.seq > seq:
                raise LogGap(seq + 1, record.seq)
        decision_seq = self.wants_after_decision_seq
        for batch in batches:
            if batch.seq > decision_seq:
                self._batches.append(batch)
                decision_seq = batch.seq

    def _stage(self) -> Staged | None:
        first_seq, cycles, index = self._staged.seq + 1, 0, 0
        while self._batches and self._held and self._batches[0].input_seq <= self._held[-1].seq:
            stored = self._batches.popleft()
            end = index + stored.input_seq - self._held[index].seq + 1 if index < len(self._held) else index
            if end <= index:
                raise LogMismatch(f"decision seq {stored.seq} answers seq {stored.input_seq}, which is already decided")
            self._folding.cycle(self._held[index:end], stored)
            self._staged = Position(stored.input_seq, stored.seq, self._folding.clock.time_ms, tip_of(self._held[end - 1]))
            index = end
            cycles += 1
        if not cycles:
            return None
        del self._held[:index]
        self._folding.heartbeats.settle()
        at, clock = self._staged, self._folding.clock
        self._commits.rows.append(
            (
                first_seq, at.seq, at.decision_seq, at.time_ms, at.seq - first_seq + 1, cycles, clock.chain.hex(), at.tip,
                clock.stated,
            )
        )  # fmt: skip
        return Staged(self._journal.take(at.seq), at, cycles)

    def commit(self, staged: Staged) -> int:
        """Write staged cycles and the position in one transaction; return the number of cycles.

        Raises ``ProjectionBroken`` when the engine has given up; after any other error ``recover`` must follow.
        """
        if self._journal.size + staged.changes.size > JOURNAL_ROWS and staged.position == self._staged:
            self._bring_up(staged.changes)
        else:
            with self._transaction() as con:
                self._journal.write(con, staged.changes)
            self._journal.written(staged.changes)
        self.position = staged.position
        return staged.cycles

    def refresh(self) -> None:
        """Bring the tables up to the position; readers need it, commits do not. Nothing may be staged."""
        if self._staged != self.position:
            raise ApportionError("refresh while cycles are staged and not committed; commit them first")
        self._bring_up()

    def _bring_up(self, changes: Changes | None = None) -> None:
        if changes is None and not self._journal.size:
            return
        with self._transaction() as con:
            self._journal.bring_up(con, changes)
        self._journal.brought_up()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        con = self._writer
        try:
            con.execute("begin")
            yield con
            con.execute("commit")
        except (duckdb.FatalException, duckdb.InternalException) as error:
            raise ProjectionBroken(f"{self.path}: {error}; rebuild the projection") from error
        except BaseException:
            con.execute("rollback")
            raise

    def digest(self) -> str:
        """Return the logical digest: equal for equal input, however it was cut, and whenever it was rebuilt."""
        self.refresh()
        return logical.digest(self.con)
