"""The heartbeat lane for short lists of records: plain heartbeats in one loop, without a function call per record.

A heartbeat is *plain* when it comes from its node's own agent, counts up, names no broken GPU and no runs, and its node is in
service and healthy; then it changes three numbers: the node's beat, when it was last seen, and a counter. Everything else ends
the run and goes through ``records.fold_record``, which is the naive equivalent of this loop record by record; a property test
feeds both. Long lists have a faster lane of their own (``lane``), which comes here for JSON in another spelling.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from apportion.core.envelope import MAX_BODY_BYTES, Record, Whole, split_subject
from apportion.core.fields import Count
from apportion.core.state.digest import MAX_FRAMES
from apportion.core.state.state import State
from apportion.core.units import MAX_ELAPSED_MS, MAX_TIME_MS

HEARTBEAT = "node.heartbeat"
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

HEARTBEAT_SUFFIX = f".{HEARTBEAT}"


class PlainBeat(msgspec.Struct, frozen=True, gc=False):
    """``NodeHeartbeat`` with the same bounds on numbers but no pattern on the name: only names that exist get past the loop."""

    node: str
    beat: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    gpus_down: tuple[int, ...] = ()
    busy_milli: Count = 0
    memory_mib: Count = 0
    watts: Count = 0
    runs: tuple[str, ...] | None = None


plain_decoder = msgspec.json.Decoder(Whole[PlainBeat])


def fold_beats(state: State, records: list[Record], start: int) -> int:
    """Fold plain heartbeats from ``records[start]`` on; returns the index of the first record that is not one."""
    counters, node = state.counters, state.node
    if not counters.opened or counters.tick_pending or not records[start].subject.endswith(HEARTBEAT_SUFFIX):
        return start
    seq, time_ms, beats = counters.seq, counters.time_ms, counters.heartbeats
    stated, silence_ms = counters.stated, counters.silence_ms
    row_of, speakers = node.row_of, state.speakers
    beat, seen, agent = node.cells.beat, node.cells.last_seen_ms, node.cells.agent
    gpus, silent, broken = node.cells.gpus, node.cells.silent, node.cells.broken
    frames, decode = list[bytes](), plain_decoder.decode
    room = MAX_FRAMES - 1 - len(state.unchained)
    index = start
    for index in range(start, min(len(records), start + room)):
        record = records[index]
        record_seq, stored_ms, subject, body = record
        speaker = speakers.get(subject) or _speaker(state, subject)
        if speaker is None or record_seq != seq + 1 or len(body) > MAX_BODY_BYTES:
            break
        if body.count(b"{") > 2 or b"[" in body:
            break  # deeper than a plain one; the bound on nesting is checked on the slow way
        try:
            said = decode(body)
        except UNREADABLE:
            break
        data = said.data
        row = row_of.get(data.node)
        if row is None or said.type != HEARTBEAT or said.v != 1 or data.beat <= beat[row]:
            break
        if speaker[0] != agent[row] or not gpus[row] or silent[row] or broken[row]:
            break
        if data.gpus_down or data.runs is not None:
            break
        claimed = said.at_ms if stated else stored_ms
        if claimed > time_ms:
            if claimed - time_ms > silence_ms or claimed - time_ms > MAX_ELAPSED_MS or claimed > MAX_TIME_MS:
                break
            time_ms = claimed
        elif claimed < 0:
            break
        seq = record_seq
        beat[row] = data.beat
        seen[row] = time_ms
        beats += 1
        frames.append(b"%d %d %b %d\n%b" % (record_seq, time_ms, speaker[1], len(body), body))
    else:
        index = min(len(records), start + room)
    state.unchained.extend(frames)
    counters.seq, counters.time_ms, counters.heartbeats = seq, time_ms, beats
    return index


def _speaker(state: State, subject: str) -> tuple[int, bytes] | None:
    """Return (row of the principal, subject as bytes) of a heartbeat's subject, and remember it: rows of principals stay."""
    if not subject.endswith(HEARTBEAT_SUFFIX):
        return None
    parts = split_subject(subject)
    row = state.principal.row_of.get(parts[0]) if parts is not None and parts[1] == HEARTBEAT else None
    if row is None:
        return None
    state.speakers[subject] = (row, subject.encode())
    return state.speakers[subject]
