"""DECISIONS as the port ``DecisionLog``: one batch per cycle, in order, by one writer at a time.

``NatsDecisionLog`` decides one thing: whether a commit has happened. The fence is the server's: a batch is stored only
where the stream still ends at the sequence the writer expects. An acknowledgement may be lost, and the answer "wrong
last sequence" (10071) may concern our own first attempt; so whenever the answer is not a plain yes, the tail is read
from the stream's leader: the same bytes at the expected place are a commit (ours or an equal core's, which is the same),
other bytes are a fence, an unchanged tail means send again.

Naive would be: one publish per batch, fail on any error. The differences: bodies above ``PART_BYTES`` travel as parts in
one atomic batch (nothing is visible before its commit, and the fence stands on its first message), and a commit waits
through any outage, because a core that does not know whether it decided must not go on.

A batch's sequence is that of its last part. It never writes anything that is not fenced.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator

import msgspec
import nats.errors

from apportion.adapters.bus import frames
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.messages import get_message, last_seq
from apportion.adapters.bus.stream import StreamTail
from apportion.adapters.bus.topology import DECISIONS, FULL
from apportion.core.envelope import DECISION_SUBJECT, StoredBatch
from apportion.core.errors import ApportionError, Fenced, LogMismatch

logger = logging.getLogger(__name__)

PART_BYTES = 512 * 1024
MAX_PARTS = 1_000  # of one atomic batch
ACK_TIMEOUT_S = 5.0
RETRY_WAIT_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FOLLOW_LIMIT = 1_000

INPUT_SEQ_HEADER = "Ap-Input-Seq"
PART_HEADER = "Ap-Part"  # "<k>/<n>", only on batches of more than one message
EXPECTED_HEADER = "Nats-Expected-Last-Sequence"

_WRONG_LAST_SEQUENCE = 10071


class CommitRefused(ApportionError):
    """The server refuses the batch for a reason other than the fence (stream full, too large). Decisions stop."""


class _Ack(msgspec.Struct):
    seq: int = 0
    stream: str = ""
    error: dict[str, object] | None = None


class NatsDecisionLog:
    """The stream DECISIONS."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tail: StreamTail[StoredBatch] | None = None
        self._position = 0
        self._known_last = 0

    # -- reading -------------------------------------------------------------------------------------------------------

    async def last_seq(self) -> int:
        """Return the sequence of the newest batch, 0 when empty; waits while the server is away."""
        self._known_last = await last_seq(self._connection, DECISIONS)
        return self._known_last

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        """Return up to ``limit`` batches after ``after_seq``; none at the end. Raises ``LogGap`` and ``LogMismatch``."""
        if self._known_last <= after_seq and await self.last_seq() <= after_seq:
            if self._known_last < after_seq:
                raise LogMismatch(
                    f"DECISIONS ends at seq {self._known_last}, before the position {after_seq} asked for: "
                    "this is another log, or its end is missing"
                )
            await self.close()  # at the end: let the server forget the consumer
            return []
        if self._tail is None or self._position != after_seq:
            await self.close()
            self._tail = self.tail(after_seq)
        self._position = -1  # until all is well: a call that fails or is cancelled has moved the tail
        batches: list[StoredBatch] = []
        while len(batches) < limit and after_seq < self._known_last:
            batches += await self._tail.take(limit - len(batches))
            after_seq = batches[-1].seq if batches else after_seq
        self._position = after_seq
        return batches

    def tail(self, after_seq: int) -> StreamTail[StoredBatch]:
        """Return an independent live reader of the batches after ``after_seq``; close it after use."""
        return StreamTail(self._connection, DECISIONS, after_seq, _Assembler())

    async def follow(self, after_seq: int) -> AsyncIterator[list[StoredBatch]]:
        """Yield batches in lists as they arrive, without end."""
        tail = self.tail(after_seq)
        try:
            while True:
                if batches := await tail.take(FOLLOW_LIMIT):
                    yield batches
        finally:
            await tail.close()

    async def close(self) -> None:
        """Stop reading; the object may be used again."""
        if self._tail is not None:
            await self._tail.close()
            self._tail = None

    # -- writing -------------------------------------------------------------------------------------------------------

    async def commit(self, body: bytes, input_seq: int, expected_last_seq: int) -> int:
        """Append one batch iff the stream still ends at ``expected_last_seq``; return its sequence.

        Waits through outages until the outcome is known. Raises ``Fenced`` when other bytes stand there,
        ``LogMismatch`` when the stream is shorter than expected, ``CommitRefused`` when the server will not store it.
        """
        parts = _split(body)
        attempt = 0
        while True:
            await self._connection.wait_until_up()
            try:
                ack = await self._send(parts, input_seq, expected_last_seq)
            except (TimeoutError, nats.errors.Error, OSError) as error:
                self._connection.check_permitted(DECISION_SUBJECT)
                logger.warning("commit of the batch for seq %d: outcome unknown (%s)", input_seq, type(error).__name__)
                ack = None
            if ack is not None:
                if ack.error is None and ack.seq:
                    return self._committed(ack.seq, expected_last_seq + len(parts))
                _raise_if_final(ack)
            seq = await self._resolve(parts, input_seq, expected_last_seq)
            if seq is not None:
                return self._committed(seq, expected_last_seq + len(parts))
            await asyncio.sleep(RETRY_WAIT_S[min(attempt, len(RETRY_WAIT_S) - 1)])
            attempt += 1

    def _committed(self, seq: int, predicted_seq: int) -> int:
        if seq != predicted_seq:
            raise LogMismatch(f"DECISIONS acknowledged seq {seq} where {predicted_seq} was due: its fence does not hold")
        self._known_last = max(self._known_last, seq)
        return seq

    async def _send(self, parts: list[bytes], input_seq: int, expected_last_seq: int) -> _Ack:
        """Publish the parts, fenced, and wait for the answer to the last. Overridden by tests that lose answers."""
        client = self._connection.client
        headers = {INPUT_SEQ_HEADER: str(input_seq)}
        fence = {EXPECTED_HEADER: str(expected_last_seq)}
        if len(parts) == 1:
            reply = await client.request(DECISION_SUBJECT, parts[0], timeout=ACK_TIMEOUT_S, headers={**headers, **fence})
            return msgspec.json.decode(reply.data, type=_Ack)
        batch_id = secrets.token_hex(16)
        for number, part in enumerate(parts, start=1):
            headers = {
                INPUT_SEQ_HEADER: str(input_seq),
                PART_HEADER: f"{number}/{len(parts)}",
                "Nats-Batch-Id": batch_id,
                "Nats-Batch-Sequence": str(number),
            }
            if number == 1:
                # Its answer is empty when the batch is open, and an error when the fence already refuses it.
                first = await client.request(
                    DECISION_SUBJECT, part, timeout=ACK_TIMEOUT_S, headers={**headers, **fence}
                )
                if first.data:
                    return msgspec.json.decode(first.data, type=_Ack)
            elif number < len(parts):
                await client.publish(DECISION_SUBJECT, part, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                reply = await client.request(DECISION_SUBJECT, part, timeout=ACK_TIMEOUT_S, headers=headers)
                return msgspec.json.decode(reply.data, type=_Ack)
        raise AssertionError("a batch has at least one part")

    async def _resolve(self, parts: list[bytes], input_seq: int, expected_last_seq: int) -> int | None:
        """Read the tail: the sequence when the batch stands there, None when nothing does. Raises ``Fenced``."""
        while True:
            last = await last_seq(self._connection, DECISIONS)
            if last < expected_last_seq:
                raise LogMismatch(
                    f"DECISIONS ends at seq {last}, but the batch for input seq {input_seq} was to follow seq "
                    f"{expected_last_seq}: its end is missing; stop, and restore it from its archive"
                )
            if last == expected_last_seq:
                return None
            try:
                await self._compare(parts, input_seq, expected_last_seq)
            except (TimeoutError, nats.errors.Error, OSError):
                await self._connection.wait_until_up()
                await asyncio.sleep(RETRY_WAIT_S[0])
                continue
            return expected_last_seq + len(parts)

    async def _compare(self, parts: list[bytes], input_seq: int, expected_last_seq: int) -> None:
        for number, part in enumerate(parts, start=1):
            seq = expected_last_seq + number
            stored = await get_message(self._connection, DECISIONS, seq)
            if stored is not None and stored.body == part:
                continue
            answers = frames.fields_of(stored.header).get(INPUT_SEQ_HEADER, "?") if stored is not None else "nothing"
            raise Fenced(
                f"another core has written DECISIONS seq {seq} (for input seq {answers}) with other bytes than this "
                f"core derived for input seq {input_seq}; this core stops. Compare both with `apportion verify`"
            )


def _raise_if_final(ack: _Ack) -> None:
    error = ack.error or {}
    code, err_code = error.get("code"), error.get("err_code")
    if isinstance(code, int) and code < 500 and err_code != _WRONG_LAST_SEQUENCE:
        raise CommitRefused(f"the server refuses to store the batch: {error.get('description')} ({err_code})")
    if err_code in FULL:
        raise CommitRefused(
            f"the server refuses to store the batch: {error.get('description')} ({err_code}); "
            "DECISIONS is at its size limit, or the server is: give it more room before starting again"
        )


def _split(body: bytes) -> list[bytes]:
    """Cut a body into the parts it travels in: one for nearly every batch."""
    if len(body) <= PART_BYTES:
        return [body]
    parts = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)]
    if len(parts) > MAX_PARTS:
        raise CommitRefused(f"a batch of {len(body)} bytes does not fit into {MAX_PARTS} parts of {PART_BYTES} bytes")
    return parts


async def begin_after(connection: Connection, seq: int) -> int:
    """Return where the first batch begins that is whole beyond ``seq``: the sequence before it. What is left of parts is none."""
    message = await get_message(connection, DECISIONS, seq + 1)
    number, _, count = frames.fields_of(message.header if message is not None else b"").get(PART_HEADER, "1/1").partition("/")
    return seq if number == "1" else seq + int(count) - int(number) + 1


class _Assembler:
    """Puts parts together again. Starting in the middle of a batch is a wrong cursor, and an error."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __call__(self, seq: int, _stored_ns: int, _subject: bytes, header: bytes, body: bytes) -> StoredBatch | None:
        fields = frames.fields_of(header)
        try:
            input_seq = int(fields[INPUT_SEQ_HEADER])
            number, _, count = fields.get(PART_HEADER, "1/1").partition("/")
            position, total = int(number), int(count)
        except (KeyError, ValueError) as error:
            raise LogMismatch(f"DECISIONS seq {seq} is no batch of this program: its headers are {fields}") from error
        if position != len(self._parts) + 1:
            raise LogMismatch(
                f"DECISIONS seq {seq} is part {position} of {total}, part {len(self._parts) + 1} was due: "
                "the position asked for is not the end of a batch"
            )
        self._parts.append(body)
        if position < total:
            return None
        whole = self._parts[0] if total == 1 else b"".join(self._parts)
        self._parts = []
        return StoredBatch(seq, input_seq, whole)
