"""Heartbeats folded to five minutes per node: how busy the GPUs were, and for how much of the time that is known.

Nine records in ten come here, so a beat is decoded in one pass to the fields that matter and costs no row of its own. A
pure function of the accepted beats. A beat speaks for the time since the beat before it, at most ``COVER_CAP_MS``: a node
that was silent for an hour does not vouch for that hour. Old or repeated beats are counted and dropped, as in the core.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import duckdb
import msgspec

from apportion.core.envelope import Record
from apportion.core.fold.setup import HEARTBEAT_TIMEOUT_MS
from apportion.core.units import MAX_TIME_MS, MILLI
from apportion.projections.capacity import Capacity, Node
from apportion.projections.clock import LogClock
from apportion.projections.sheet import OpenRows, Sheet

HEARTBEAT = "node.heartbeat"
BUCKET_MS = 300_000
COVER_CAP_MS = HEARTBEAT_TIMEOUT_MS  # a node silent for longer is out of service by default

_SUFFIX = f".{HEARTBEAT}"
_COLUMNS = (
    "node_id", "node", "pool", "gpus", "bucket_ms", "first_seq", "last_seq", "samples", "covered_gpu_us", "busy_gpu_us",
    "busy_milli_max", "memory_mib_max", "watts_sum", "gpus_down_max", "beat", "last_ms",
)  # fmt: skip


class Beat(msgspec.Struct, gc=False):
    """The payload of ``node.heartbeat``, as far as it matters here. The core has checked the bounds."""

    node: str
    beat: int
    gpus_down: tuple[int, ...] = ()
    busy_milli: int = 0
    memory_mib: int = 0
    watts: int = 0


class BeatBody(msgspec.Struct, gc=False):
    """Envelope and payload of a heartbeat in one pass."""

    data: Beat
    at_ms: int = 0


decode_beat = msgspec.json.Decoder(BeatBody).decode


class _Bucket:
    """Five minutes of one node, being filled."""

    __slots__ = (
        "beat", "bucket_ms", "busy_gpu_us", "busy_milli_max", "covered_ms", "first_seq", "gpus", "gpus_down_max", "last_ms",
        "last_seq", "memory_mib_max", "node", "pool", "samples", "touched", "until_ms", "watts_sum",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.node = node
        self.beat = 0
        self.last_ms = 0
        self.touched = False
        self.reset(0, 0)

    def reset(self, bucket_ms: int, first_seq: int) -> None:
        """Start an empty bucket, with the node's pool and size of this moment."""
        self.bucket_ms = bucket_ms
        self.until_ms = bucket_ms + BUCKET_MS
        self.first_seq = self.last_seq = first_seq
        self.pool = self.node.pool
        self.gpus = self.node.gpus
        self.samples = self.covered_ms = self.busy_gpu_us = self.busy_milli_max = 0
        self.memory_mib_max = self.watts_sum = self.gpus_down_max = 0

    def row(self) -> tuple[Any, ...]:
        """Return its row."""
        return (
            self.node.node_id, self.node.name, self.pool, self.gpus, self.bucket_ms, self.first_seq, self.last_seq,
            self.samples, self.gpus * MILLI * self.covered_ms, self.busy_gpu_us, self.busy_milli_max, self.memory_mib_max,
            self.watts_sum, self.gpus_down_max, self.beat, self.last_ms,
        )  # fmt: skip

    def restore(self, row: tuple[Any, ...]) -> None:
        """Take a row up again."""
        (
            _, _, self.pool, self.gpus, self.bucket_ms, self.first_seq, self.last_seq, self.samples, covered_gpu_us,
            self.busy_gpu_us, self.busy_milli_max, self.memory_mib_max, self.watts_sum, self.gpus_down_max, self.beat,
            self.last_ms,
        ) = row  # fmt: skip
        self.until_ms = self.bucket_ms + BUCKET_MS
        self.covered_ms = covered_gpu_us // (self.gpus * MILLI) if self.gpus else 0


class Heartbeats:
    """Rows of five minutes, and the counters of a cycle."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.open = OpenRows("fact.heartbeat_5m_open", *_COLUMNS)
        self.closed = Sheet("fact.heartbeat_5m_closed", *_COLUMNS, "close_seq")
        self.accepted = 0
        self.stale = 0
        self._buckets: dict[str, _Bucket] = {}
        self._touched: list[_Bucket] = []
        self._subjects: dict[str, bytes] = {}  # of heartbeats

    def load(self, _con: duckdb.DuckDBPyConnection) -> None:
        """Take up the buckets from loaded open rows."""
        self._buckets, self._touched, self.accepted, self.stale = {}, [], 0, 0
        for row in self.open.rows.values():
            node = self.capacity.nodes[row[1]]
            bucket = self._buckets[node.name] = _Bucket(node)
            bucket.restore(row)

    def fold(self, records: Sequence[Record], start: int, refused: Container[int], clock: LogClock) -> int:
        """Fold plain heartbeats from ``records[start]`` on; returns the index of the first record that is not one.

        Plain: accepted, of a known node that is in service and healthy, and no leap of time. The naive equivalent of this loop is
        ``clock.take`` and ``beat`` for each; it is written out because nine records in ten pass here.
        """
        buckets, touched, frames, decode = self._buckets, self._touched, clock.frames, decode_beat
        stated, time_ms, subjects = clock.stated, clock.time_ms, self._subjects
        stop = min(len(records), start + clock.room) if clock.opened else start
        index = start
        for index in range(start, stop):
            seq, stored_ms, subject, body = records[index]
            encoded = subjects.get(subject)
            if encoded is None:
                if not subject.endswith(_SUFFIX):
                    break
                encoded = subjects[subject] = subject.encode("utf-8", "surrogatepass")
            if seq in refused:
                break
            heard = decode(body)
            data = heard.data
            bucket = buckets.get(data.node)
            if bucket is None:
                break
            node, beat = bucket.node, data.beat
            if beat <= bucket.beat or data.gpus_down or node.silent or node.broken:
                break
            now_ms = heard.at_ms if stated else stored_ms
            if now_ms <= time_ms:
                now_ms = time_ms
            elif now_ms - time_ms > BUCKET_MS or now_ms > MAX_TIME_MS:
                break
            time_ms = now_ms
            frames += (seq, now_ms, encoded, len(body), body)
            if now_ms >= bucket.until_ms or bucket.gpus != node.gpus or bucket.pool != node.pool:
                self._turn(bucket, seq, now_ms)
            elapsed_ms = now_ms - bucket.last_ms
            if elapsed_ms > COVER_CAP_MS:
                elapsed_ms = COVER_CAP_MS
            busy_milli, width_milli = data.busy_milli, bucket.gpus * MILLI
            bucket.covered_ms += elapsed_ms
            bucket.busy_gpu_us += (busy_milli if busy_milli < width_milli else width_milli) * elapsed_ms
            bucket.samples += 1
            bucket.beat = beat
            bucket.last_seq = seq
            bucket.last_ms = now_ms
            bucket.watts_sum += data.watts
            if busy_milli > bucket.busy_milli_max:
                bucket.busy_milli_max = busy_milli
            if data.memory_mib > bucket.memory_mib_max:
                bucket.memory_mib_max = data.memory_mib
            if not bucket.touched:
                bucket.touched = True
                touched.append(bucket)
        else:
            index = max(start, stop)
        self.accepted += index - start
        clock.time_ms = time_ms
        return index

    def _turn(self, bucket: _Bucket, seq: int, time_ms: int) -> None:
        """Five minutes are over, or the node is another: close the bucket and begin the next."""
        if bucket.samples:
            self.closed.rows.append((*bucket.row(), seq))
        bucket.reset(time_ms - time_ms % BUCKET_MS, seq)

    def beat(self, seq: int, time_ms: int, data: Beat) -> None:
        """Fold one accepted heartbeat."""
        name, beat, gpus_down = data.node, data.beat, data.gpus_down
        busy_milli, memory_mib, watts = data.busy_milli, data.memory_mib, data.watts
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self.capacity.nodes[name])
        elif beat <= bucket.beat:
            self.stale += 1
            return
        self.accepted += 1
        node = bucket.node
        if node.silent:
            self.capacity.sign_of_life(node, seq, time_ms)
        if gpus_down or node.broken:
            self.capacity.gpus_down(node, gpus_down, seq, time_ms)
        if time_ms >= bucket.until_ms or bucket.gpus != node.gpus or bucket.pool != node.pool:
            self._turn(bucket, seq, time_ms)
        if bucket.beat:
            elapsed_ms = time_ms - bucket.last_ms
            if elapsed_ms > COVER_CAP_MS:
                elapsed_ms = COVER_CAP_MS
            bucket.covered_ms += elapsed_ms
            bucket.busy_gpu_us += min(busy_milli, bucket.gpus * MILLI) * elapsed_ms
        bucket.samples += 1
        bucket.beat = beat
        bucket.last_seq = seq
        bucket.last_ms = time_ms
        bucket.watts_sum += watts
        if busy_milli > bucket.busy_milli_max:
            bucket.busy_milli_max = busy_milli
        if memory_mib > bucket.memory_mib_max:
            bucket.memory_mib_max = memory_mib
        if gpus_down and len(gpus_down) > bucket.gpus_down_max:
            bucket.gpus_down_max = len(gpus_down)
        if not bucket.touched:
            bucket.touched = True
            self._touched.append(bucket)

    def take_counts(self) -> tuple[int, int]:
        """Return accepted and stale beats since the last call."""
        counts = self.accepted, self.stale
        self.accepted = self.stale = 0
        return counts

    def settle(self) -> None:
        """Bring the open rows up to date; called once per commit, not per beat."""
        for bucket in self._touched:
            bucket.touched = False
            self.open.put(bucket.row())
        self._touched = []
