"""Which record was the newest at an instant: from the times that the stored decisions carry, and the core's rule of time between.

A pure function of the two logs. Nothing is replayed: the decisions are searched by halves, and only the records between two
of them are looked at. It never writes a log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from apportion.adapters.logs.claims import claimed_ms
from apportion.adapters.text import render
from apportion.core.envelope import StoredBatch
from apportion.core.errors import LogMismatch
from apportion.core.ports import DecisionLog, EventLog
from apportion.core.units import next_time_ms

READ_EVENTS = 5_000


class Decided(msgspec.Struct, frozen=True, gc=False):
    """Which cycle a batch decided, at which tick."""

    seq: int
    time_ms: int
    cycle: int


_decided = msgspec.json.Decoder(Decided)


async def seq_at(events: EventLog, decisions: DecisionLog, at_ms: int) -> int:
    """Return the sequence of the last record whose time is at or before ``at_ms``.

    Raises ``ValueError`` for an instant before the log was opened or after its last record, ``LogMismatch``.
    """
    opened = await opening(events)
    if opened.time_ms > at_ms:
        raise ValueError(f"the log was opened after that, with seq {opened.seq:,} at {render.iso(opened.time_ms)}")
    before, stated = await last_decided(decisions, lambda batch: batch.time_ms <= at_ms), opened.stated
    seq, time_ms = (before.seq, before.time_ms) if before is not None else (opened.seq, opened.time_ms)
    last_seq = await events.last_seq()
    while seq < last_seq:
        for record in await events.read(seq, READ_EVENTS):
            now_ms = next_time_ms(time_ms, claimed_ms(record, stated=stated), stated=stated)
            time_ms = time_ms if now_ms is None else now_ms
            if time_ms > at_ms:
                return seq
            seq = record.seq
    if time_ms < at_ms:
        raise ValueError(f"the log ends before that, with seq {last_seq:,} at {render.iso(time_ms)}")
    return seq


async def last_decided(decisions: DecisionLog, early: Callable[[Decided], bool]) -> Decided | None:
    """Return the last cycle that is early, by halves; ``early`` holds for the first ones and for none after them."""
    low, high = 0, await decisions.last_seq()  # an early batch ends at or below low; one that is not begins above high
    found: Decided | None = None
    while low < high:
        middle = (low + high) // 2
        batch = await _batch_after(decisions, middle)
        decided = _decided.decode(batch.body)
        if early(decided):
            low, found = batch.seq, decided
        else:
            high = middle
    return found


async def _batch_after(decisions: DecisionLog, position: int) -> StoredBatch:
    """Return the first whole batch that ends after a position, which may be inside one that travelled in parts."""
    while True:
        try:
            return (await decisions.read(position, 1))[0]
        except LogMismatch:
            if position == 0:
                raise
            position -= 1


class Opening(NamedTuple):
    """The record that opened the log, and its time. ``stated``: time is what producers state."""

    seq: int
    time_ms: int
    stated: bool
    log_id: str


async def opening(events: EventLog) -> Opening:
    """Return what opened the log. Raises ``ValueError`` when nothing did."""
    from apportion.core.engine import Core  # the rule of what opens a log is the core's

    core, last_seq = Core.new(), await events.last_seq()
    counters = core.state.counters
    while core.seq < last_seq and not counters.opened:
        for record in await events.read(core.seq, 100):
            core.fold(record)
            if counters.opened:
                break
    if not counters.opened:
        raise ValueError(f"none of the {last_seq:,} records opened the log")
    return Opening(core.seq, core.time_ms, bool(counters.stated), core.state.log_id)
