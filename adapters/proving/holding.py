"""Does a log still hold what a document speaks of? Both logs are read again, and nothing is derived.

The chain over the records of the range is computed anew from where the document starts, by the core's rule of time, and the
hash over the stored decisions beside it; both must come out as the document says. That costs no state, so it works where the
snapshot that the proof started from is long gone. A pure function of document and logs; it never writes one.
"""

from __future__ import annotations

import hashlib

from apportion.adapters.logs.claims import claimed_ms
from apportion.adapters.logs.moments import Opening, opening
from apportion.adapters.past.driving import OnProgress, Progress, StoredBatches
from apportion.adapters.proving.document import Document
from apportion.adapters.proving.stretch import Opened
from apportion.core.errors import ApportionError
from apportion.projections.clock import LogClock

READ_EVENTS = 5_000


async def differs(document: Document, logs: Opened, progress: OnProgress | None = None) -> str:
    """Return in what this log is not the one of the document, "" when it holds exactly that range."""
    last_seq = await logs.events.last_seq()
    if last_seq < document.last_seq:
        return f"the log ends at seq {last_seq:,}, the document speaks of records up to seq {document.last_seq:,}"
    try:
        opened = await opening(logs.events)
        if opened.log_id != document.log_id:
            return f"this is log {opened.log_id!r}, the document is about log {document.log_id!r}"
        return await _compare(document, logs, opened, progress)
    except (ApportionError, ValueError) as error:
        return str(error)


async def _compare(document: Document, logs: Opened, opened: Opening, progress: OnProgress | None) -> str:
    start, end, stated = document.start, document.end, opened.stated
    began_ms = start.open_ms if start.open_records else start.time_ms
    clock = LogClock(start.seq >= opened.seq, stated, began_ms, bytes.fromhex(start.chain))
    batches, hashes = StoredBatches(logs.decisions, start.cycle, start.seq + 1), hashlib.sha256()
    seq, cycles, closed = start.seq - start.open_records, 0, False
    batch, at = await batches.next(), Progress(last_seq=end.seq)
    while seq < end.seq:
        for record in await logs.events.read(seq, min(READ_EVENTS, end.seq - seq)):
            seq, claim = record.seq, claimed_ms(record, stated=stated)
            clock.take(record, claim)
            if seq == opened.seq:
                clock.open(stated, record.stored_ms, claim)
            if batch is None or batch.input_seq != seq:
                continue
            clock.close_chain()
            if closed := seq == end.seq and bool(document.undecided):
                continue  # its batch came after the proof
            hashes.update(hashlib.sha256(batch.body).digest())
            cycles, batch = cycles + 1, await batches.next()
        at.events, at.seq, at.time_ms = seq - start.seq, seq, clock.time_ms
        if progress is not None:
            progress(at)
    if document.undecided and not closed:
        clock.close_chain()
    if cycles != document.cycles:
        return f"DECISIONS answers {cycles:,} ticks of the range, the document speaks of {document.cycles:,}"
    if hashes.hexdigest() != document.decisions_sha256:
        return "the stored decisions of the range are not those that the document speaks of"
    if (clock.chain.hex(), clock.taken) != (end.chain, end.open_records):
        return "the records of the range are not those that the document speaks of (the chain over them differs)"
    return ""
