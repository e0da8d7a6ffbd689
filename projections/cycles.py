"""Cycles and every decision in them, and the raw log beside them.

A pure function of records and batches; the only place that keeps refused input. Views in ``schema`` make certificates,
refusals, reasons of waiting, and books out of these rows, so each fact is stored once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.core.decisions import AnyDecision, CycleBatch, PoolBooks
from apportion.core.envelope import Envelope, Record, encode
from apportion.core.events import Event
from apportion.projections.moment import Decided
from apportion.projections.sheet import Sheet

REFUSED_BODY_CHARACTERS = 4_096
_ENTITY_FIELDS = ("workload", "node", "from_budget", "budget", "pool", "target", "log_id")
_REASON_FIELDS = ("reason", "outcome", "why")


class RawBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A ``CycleBatch`` whose decisions are still bytes, so that they are stored exactly as written."""

    core: int
    cycle: int
    seq: int
    time_ms: int
    chain: str
    digest: str
    decisions: tuple[msgspec.Raw, ...]
    books: tuple[PoolBooks, ...] = ()


decode_raw_batch = msgspec.json.Decoder(RawBatch).decode
decode_decision: Any = msgspec.json.Decoder(AnyDecision).decode
assert set(RawBatch.__struct_fields__) == set(CycleBatch.__struct_fields__)


def entity_of(event: Event) -> str:
    """Return the one name an event is about."""
    for field in _ENTITY_FIELDS:
        value = getattr(event, field, None)
        if value is not None:
            return str(value)
    return ""


def clean(text: bytes | str) -> str:
    """Return text that any database takes, whatever the bytes were."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return raw.decode("utf-8", "backslashreplace").replace("\0", "\\0")


class Cycles:
    """Rows of the log, of cycles and of decisions."""

    def __init__(self) -> None:
        self.log = Sheet(
            "raw.event_log", "seq", "time_ms", "stored_ms", "principal", "type", "entity", "event_id", "version",
            "claimed_ms", "refused", "body_bytes", "body",
        )  # fmt: skip
        self.cycles = Sheet(
            "fact.cycle", "seq", "decision_seq", "cycle", "core", "time_ms", "why", "first_seq", "records", "heartbeats",
            "stale_heartbeats", "decisions", "chain", "digest", "books",
        )  # fmt: skip
        self.decisions = Sheet(
            "fact.decision", "seq", "position", "time_ms", "type", "workload", "run", "node", "pool", "budget", "reason",
            "payer", "gpus_milli", "event_seq", "body",
        )  # fmt: skip

    def accepted(self, record: Record, time_ms: int, parts: tuple[str, str], envelope: Envelope, event: Event) -> None:
        """Keep an accepted record."""
        self.log.rows.append(
            (
                record.seq, time_ms, record.stored_ms, parts[0], parts[1], entity_of(event), clean(envelope.id), envelope.v,
                envelope.at_ms, False, len(record.body), clean(record.body),
            )
        )

    def refused(
        self, record: Record, time_ms: int, parts: tuple[str, str] | None, envelope: Envelope | None, entity: str
    ) -> None:
        """Keep a refused record, whatever it is; ``entity`` is what the refusal says it was about."""
        principal, event_type = parts or ("", record.subject)
        found = (envelope.id, envelope.v, envelope.at_ms) if envelope is not None else ("", 0, 0)
        event_id, version, claimed_ms = found
        if not -(2**63) <= version < 2**63 or not -(2**63) <= claimed_ms < 2**63:
            version = claimed_ms = 0  # the body shows what was written
        self.log.rows.append(
            (
                record.seq, time_ms, record.stored_ms, clean(principal)[:256], clean(event_type)[:256], entity,
                clean(event_id)[:256], version, claimed_ms, True, len(record.body), clean(record.body[:REFUSED_BODY_CHARACTERS]),
            )
        )

    def decided(self, at: Decided, decision: AnyDecision, body: msgspec.Raw) -> None:
        """Keep a decision, with the fields that most readers look for."""
        get = decision.__class__.__struct_fields__.__contains__
        reason = ""
        for field in _REASON_FIELDS:
            if get(field):
                reason = getattr(decision, field)
                break
        self.decisions.rows.append(
            (
                at.seq, at.position, at.time_ms, decision.__struct_config__.tag,
                getattr(decision, "workload", ""), getattr(decision, "run", 0), getattr(decision, "node", ""),
                getattr(decision, "pool", ""), getattr(decision, "budget", ""), reason, getattr(decision, "payer", ""),
                getattr(decision, "gpus_milli", 0), getattr(decision, "event_seq", 0), bytes(body).decode(),
            )
        )

    def cycle(
        self, batch: RawBatch, decision_seq: int, why: str, first_seq: int, counts: tuple[int, int]
    ) -> None:
        """Keep the cycle itself; ``counts`` are accepted and stale heartbeats."""
        records = batch.seq - first_seq + 1
        self.cycles.rows.append(
            (
                batch.seq, decision_seq, batch.cycle, batch.core, batch.time_ms, why, first_seq, records, counts[0], counts[1],
                len(batch.decisions), batch.chain, batch.digest, encode(batch.books).decode(),
            )
        )
