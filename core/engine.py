"""``Core``: the one scheduler. Production, standby, replay, verify, what-if, simulation and tests drive this same class.

It strings fold and policy together and owns nothing else: records go in one by one; at an accepted ``clock.tick`` a cycle is
pending and exactly one of ``decide`` (live), ``trust`` (replay) or ``verify`` (re-derive and compare) answers it.

A pure function of the records and, when trusting, of the stored batches. It never reads a clock and never writes a log: the
caller commits the bytes of ``decide`` before acting on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from apportion.core import ledger
from apportion.core.decisions import AnyDecision, CycleBatch, decode_batch, encode_batch
from apportion.core.envelope import Record, encode
from apportion.core.errors import ApportionError, Divergence
from apportion.core.fold.columns import Columns
from apportion.core.fold.lane import Lane
from apportion.core.fold.outcomes import apply, apply_all, apply_bulk
from apportion.core.fold.records import fold_record
from apportion.core.fold.stretches import Batches, Stretches
from apportion.core.fold.text import Text
from apportion.core.policy.cycle import run_cycle
from apportion.core.policy.due import due_ms, why_due
from apportion.core.policy.emit import Emit
from apportion.core.reasons import TickWhy
from apportion.core.state import snapshot
from apportion.core.state.digest import digest
from apportion.core.state.state import State
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

CLOSED_RETENTION_MS = 14 * MS_PER_DAY  # how long the id of a finished workload stays taken
CHANGE_RETENTION_MS = 366 * MS_PER_DAY  # how long a second copy of a grant or transfer is recognised


class Core:
    """State plus the two things one may do to it: fold records, and decide the pending cycle."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._lane = Lane(state)
        self._stretches = Stretches(state, self._lane)
        self.last_batch: CycleBatch | None = None
        self._chain_missing = False  # records were folded whose chain is not computed: the next batch has it

    @classmethod
    def new(cls) -> Core:
        """Return a core that has read nothing."""
        return cls(State())

    @classmethod
    def from_snapshot(cls, data: bytes) -> Core:
        """Return a core that continues from a snapshot; raises ``SnapshotInvalid``."""
        return cls(snapshot.load(data))

    def snapshot(self) -> bytes:
        """Return the state as self-checking bytes; possible after any record (not of columns, before their batch)."""
        self._require_chain()
        return snapshot.dump(self.state)

    def digest(self) -> str:
        """Return the hex digest of the state's physical bytes."""
        self._require_chain()
        return digest(self.state)

    @property
    def seq(self) -> int:
        """Sequence of the last record folded, 0 at the beginning."""
        return self.state.counters.seq

    @property
    def time_ms(self) -> int:
        """Time of that record."""
        return self.state.counters.time_ms

    @property
    def cycle(self) -> int:
        """Number of cycles decided."""
        return self.state.counters.cycle

    @property
    def dirty(self) -> bool:
        """An input since the last cycle may change a decision."""
        return bool(self.state.counters.dirty)

    @property
    def tick_pending(self) -> bool:
        """A tick was folded and its cycle is not decided yet."""
        return bool(self.state.counters.tick_pending)

    def due_ms(self) -> int | None:
        """Return the instant of the next deadline in the state, None when there is none."""
        return due_ms(self.state)

    def why_due(self, now_ms: int) -> TickWhy:
        """Return which kind of deadline has come by ``now_ms``, for the tick that says so."""
        return why_due(self.state, now_ms)

    def fold(self, record: Record) -> bool:
        """Fold one record; True when a cycle must be decided now. Raises ``LogGap``, ``InvariantBroken``."""
        if self.state.counters.tick_pending:
            raise ApportionError(
                f"seq {record.seq} was folded while the cycle of seq {self.seq} is undecided; "
                "call decide, trust or verify first"
            )
        return fold_record(self.state, record)

    def fold_many(self, records: list[Record], start: int = 0) -> int:
        """Fold ``records[start:]`` up to and including the first accepted tick; returns the index after the last one folded."""
        if self.state.counters.tick_pending and start < len(records):
            self.fold(records[start])  # raises, with the reason
        state, index = self.state, start
        while index < len(records):
            index = self._lane.fold(records, index)
            if index < len(records):
                index += 1
                if fold_record(state, records[index - 1]):
                    break
        return index

    def fold_columns(self, columns: Columns, start: int = 0) -> int:
        """Fold from position ``start`` of ``columns`` up to and including the first accepted tick; returns the position after it.

        The state is the one of ``fold`` but for the chain over the records, which is not computed: ``trust`` may follow, with the
        batch that answers the tick, and takes the chain from it. Until then the core can neither be saved nor decide anything that
        is stored; ``decide_unhashed`` goes without.
        """
        state, index = self.state, start
        if state.counters.tick_pending and start < columns.count:
            self.fold(columns.record(start))  # raises, with the reason
        while index < columns.count:
            self._chain_missing = True
            index = self._lane.fold_columns(columns, index)
            if index < columns.count:
                index += 1
                if fold_record(state, columns.record(index - 1)):
                    break
        return index

    def fold_text(self, text: Text, start: int = 0) -> int:
        """Fold from position ``start`` of ``text`` up to and including the first accepted tick; returns the position after it.

        The same as ``fold`` of its records one by one.
        """
        state, index = self.state, start
        if state.counters.tick_pending and start < text.count:
            self.fold(text.record(start))  # raises, with the reason
        while index < text.count:
            index = self._lane.fold_text(text, index)
            if index < text.count:
                index += 1
                if fold_record(state, text.record(index - 1)):
                    break
        return index

    def trust_columns(self, columns: Columns, start: int, batches: Batches) -> int:
        """Fold from position ``start`` of ``columns``, and trust the batches that answer its ticks; returns the position reached.

        That is the end, or after a tick that is pending: then the next of ``batches`` is to be trusted by ``trust``, from its
        decision ``batches.done`` on. The state is the one of ``fold_columns`` and ``trust`` with ``check=False``, and what is said
        there of the chain holds here; heads and books are compared, and the accounts checked, for every batch. Raises what they do.
        """
        state, index = self.state, start
        if state.counters.tick_pending and start < columns.count:
            self.fold(columns.record(start))  # raises, with the reason
        while index < columns.count and not state.counters.tick_pending:
            index = self._stretches.fold(
                columns, index, batches, CLOSED_RETENTION_MS, CHANGE_RETENTION_MS, MS_PER_HOUR
            )
            if state.counters.tick_pending or index == columns.count:
                break
            record = columns.record(index)
            index += 1
            fold_record(state, record)
            self._stretches.doors.after(record)
        self._chain_missing = not batches.taken or state.counters.seq != batches.batches[batches.taken - 1].input_seq
        return index

    def decide(self) -> bytes:
        """Decide the pending cycle, fold its decisions, and return the exact bytes for DECISIONS."""
        self._require_chain()
        return encode_batch(self._finish(self._decisions()))

    def decide_unhashed(self, *, told: bool = True) -> CycleBatch:
        """Decide the pending cycle like ``decide``, for measurements that store nothing: the batch has no digest, and after columns
        no chain.

        With ``told=False`` it does not say either why workloads wait; all other decisions are the same.
        """
        return self._finish(self._decisions(told), known_digest="")

    def _decisions(self, told: bool = True) -> Sequence[AnyDecision]:
        self._require_tick()
        emit = emit_into(self.state)
        run_cycle(self.state, emit, told=told)
        return emit.decisions

    def trust(self, body: bytes, *, check: bool = True, done: int = 0) -> None:
        """Fold a stored batch instead of deciding; raises ``Divergence`` when the state it promises is not reached.

        The first ``done`` of its decisions are folded already (``trust_columns``). ``check=False`` compares the chain over the
        records and the books, but does not hash the state: for long replays, whose last batch is then trusted with
        ``check=True``, which covers all before it.
        """
        self._require_tick()
        stored = decode_batch(body)
        if stored.seq != self.seq:
            raise Divergence(self.seq, "the tick answered", str(stored.seq), str(self.seq))
        if self._chain_missing:
            self.state.chain, self._chain_missing = bytes.fromhex(stored.chain), False
            self.state.unchained.clear()
        try:
            apply_all(self.state, stored.decisions[done:])
        except (KeyError, ValueError, IndexError) as error:
            raise Divergence(self.seq, "a stored decision, it does not fit the state", repr(error), "") from error
        reached = self._finish(stored.decisions, stored.digest if not check else None)
        if reached != stored or (check and encode_batch(reached) != body):
            self._differ(stored, reached)

    def verify(self, body: bytes) -> None:
        """Decide the pending cycle and compare with the stored bytes; raises ``Divergence`` at the first difference."""
        derived = self.decide()
        if derived != body and self.last_batch is not None:
            self._differ(decode_batch(body), self.last_batch)

    def _differ(self, stored: CycleBatch, derived: CycleBatch) -> None:
        for name in ("core", "cycle", "seq", "time_ms", "chain"):
            if getattr(stored, name) != getattr(derived, name):
                raise Divergence(self.seq, name, str(getattr(stored, name)), str(getattr(derived, name)))
        for index in range(max(len(stored.decisions), len(derived.decisions))):
            left = stored.decisions[index] if index < len(stored.decisions) else None
            right = derived.decisions[index] if index < len(derived.decisions) else None
            if left != right:
                raise Divergence(self.seq, f"decision {index}", encode(left).decode(), encode(right).decode())
        if stored.books != derived.books:
            raise Divergence(self.seq, "books", encode(stored.books).decode(), encode(derived.books).decode())
        if stored.digest != derived.digest:
            raise Divergence(self.seq, "digest of the state", stored.digest, derived.digest)
        raise Divergence(self.seq, "bytes (unknown fields, or another spelling of equal values)", "", "")

    def _require_tick(self) -> None:
        if not self.state.counters.tick_pending:
            raise ApportionError(f"no cycle is pending at seq {self.seq}; fold records until fold() returns True")

    def _require_chain(self) -> None:
        if self._chain_missing:
            raise ApportionError(f"at seq {self.seq} the chain over the records is not known before their batch is trusted")

    def _finish(self, decisions: Sequence[AnyDecision], known_digest: str | None = None) -> CycleBatch:
        """Close the cycle in the state, check the books, and make the batch; hashes the state unless its digest is trusted."""
        state, counters = self.state, self.state.counters
        ledger.end_cycle(state)
        counters.cycle += 1
        counters.cycle_ms = counters.time_ms
        counters.dirty = 0
        counters.tick_pending = 0
        _prune(state)
        self.last_batch = CycleBatch(
            core=counters.core,
            cycle=counters.cycle,
            seq=counters.seq,
            time_ms=counters.time_ms,
            chain="" if self._chain_missing else state.chain.hex(),
            digest=known_digest if known_digest is not None else digest(state),
            decisions=decisions,
            books=ledger.books(state),
        )
        return self.last_batch


def emit_into(state: State) -> Emit:
    """Return an ``Emit`` that folds into a state."""
    return Emit(partial(apply, state), partial(apply_all, state), partial(apply_bulk, state))


def _prune(state: State) -> None:
    """Forget ids of workloads and changes of long ago; looked at once an hour of log time."""
    counters = state.counters
    if counters.time_ms - counters.pruned_ms < MS_PER_HOUR:
        return
    counters.pruned_ms = counters.time_ms
    for table, since, retention_ms in (
        (state.closed, state.closed.column("closed_ms"), CLOSED_RETENTION_MS),
        (state.change, state.change.column("made_ms"), CHANGE_RETENTION_MS),
    ):
        live = table.column("key_code") != 0
        for row in np.flatnonzero(live & (since < counters.time_ms - retention_ms)):
            table.remove(int(row))
