"""What agents still need of the records that a cut dropped, in a small stream of its own: ``KEPT``.

An agent reads a job's command and environment from its submission in EVENTS, and where that stands from the admission in DECISIONS.
A job may wait longer than the log reaches back, and a service may run for years. So a cut first keeps, for all that is not closed:

- ``ap.kept.record.<seq>``: the submission, byte for byte;
- ``ap.kept.job.<hash of the name>``: at which sequence the job was submitted, for an agent that never saw its admission.

One message per subject, the newest; keeping again changes nothing. ``forget_but`` drops what is closed by now, so the stream is no
larger than the work that was open at the last cut, and needs no limit: one would drop what is needed. Decides nothing: a record
taken from here is judged by the agent as one from EVENTS is.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from apportion.adapters.bus.connection import ApiError, Connection
from apportion.adapters.bus.messages import message_on
from apportion.adapters.bus.publisher import Publisher
from apportion.adapters.bus.topology import EVENTS, StreamInfo, TopologyError, stream_info

KEPT = "KEPT"
PREFIX = "ap.kept"
_NAME_IN_USE = 10058
_STREAM_NOT_FOUND = 10059
_REQUIRED: dict[str, Any] = {
    "subjects": [f"{PREFIX}.>"], "retention": "limits", "storage": "file", "max_msgs_per_subject": 1, "discard": "old",
    "max_msgs": -1, "max_bytes": -1, "max_age": 0,
}  # fmt: skip


class Submitted(msgspec.Struct, frozen=True):
    """Which record submitted a job."""

    workload: str
    seq: int


def record_subject(seq: int) -> str:
    """Return where the record of a sequence is kept."""
    return f"{PREFIX}.record.{seq}"


def job_subject(workload: str) -> str:
    """Return where it is kept which record submitted a job: its name may hold what a subject may not."""
    return f"{PREFIX}.job.{hashlib.blake2b(workload.encode(), digest_size=16).hexdigest()}"


async def keep(connection: Connection, records: Iterable[tuple[int, bytes]], jobs: Iterable[Submitted]) -> None:
    """Keep records by sequence, and which of them submitted which job; returns when all are stored.

    Raises ``PublishRefused``, ``TopologyError`` when the stream would not keep it, and ``ApiError`` or ``TimeoutError`` when this
    user may not make the stream.
    """
    await _made(connection)
    publisher = await Publisher.open(connection)
    try:
        once = secrets.token_hex(8)  # each may be sent again now, and is another next time: it may have been forgotten meanwhile
        await publisher.send_many((record_subject(seq), body, f"{once}-{seq}") for seq, body in records)
        await publisher.send_many(
            (job_subject(job.workload), msgspec.json.encode(job), f"{once}-{job_subject(job.workload)}") for job in jobs
        )
        await publisher.flush()
    finally:
        await publisher.close()


async def kept_record(connection: Connection, seq: int) -> bytes | None:
    """Return the body of the record at ``seq``, None when it is not kept."""
    message = await message_on(connection, KEPT, record_subject(seq))
    return None if message is None else message.body


async def kept_submission(connection: Connection, workload: str) -> int:
    """Return the sequence of the record that submitted a job, 0 when that is not kept."""
    message = await message_on(connection, KEPT, job_subject(workload))
    if message is None:
        return 0
    found = msgspec.json.decode(message.body, type=Submitted)
    return found.seq if found.workload == workload else 0


async def forget_but(connection: Connection, seqs: Iterable[int], workloads: Iterable[str]) -> int:
    """Drop what is kept and not among these; return how many messages that were."""
    wanted = {record_subject(seq): 1 for seq in seqs} | {job_subject(workload): 1 for workload in workloads}
    stale = [subject for subject in await _subjects(connection) if subject not in wanted]
    for subject in stale:
        await connection.api(f"STREAM.PURGE.{KEPT}", {"filter": subject}, dict[str, object])
    return len(stale)


async def _made(connection: Connection) -> None:
    """Make the stream where it is missing, with as many replicas as EVENTS. Raises ``TopologyError`` when it is another."""
    wanted = {**_REQUIRED, "num_replicas": (await stream_info(connection, EVENTS)).config.get("num_replicas", 1)}
    try:
        await stream_info(connection, KEPT)
    except ApiError as error:
        if error.err_code != _STREAM_NOT_FOUND:
            raise
        config = {**wanted, "name": KEPT, "compression": "s2", "allow_direct": False}
        try:
            await connection.api(f"STREAM.CREATE.{KEPT}", config, StreamInfo, 10.0)
        except ApiError as created:
            if created.err_code != _NAME_IN_USE:
                raise
    found = (await stream_info(connection, KEPT)).config
    wrong = [f"{name} is {found.get(name)!r}, must be {value!r}" for name, value in wanted.items() if found.get(name) != value]
    if wrong:
        raise TopologyError(
            f"stream {KEPT}, where submissions of open work are kept for agents, would not keep them: {'; '.join(wrong)}. "
            "Set it so, or delete it and cut again: all that is open is kept anew"
        )


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _Page(msgspec.Struct):
    state: _State
    total: int = 0


async def _subjects(connection: Connection) -> list[str]:
    found: list[str] = []
    while True:
        asked = {"subjects_filter": f"{PREFIX}.>", "offset": len(found)}
        page = await connection.api(f"STREAM.INFO.{KEPT}", asked, _Page)
        found += page.state.subjects or {}
        if not page.state.subjects or len(found) >= page.total:
            return sorted(found)
