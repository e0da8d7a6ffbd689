"""Days of an archive as Parquet, for people, notebooks and other engines: one file of events and one of decisions a day.

The rows are the log's: ``seq, time_ms, stored_ms, subject, payload`` and ``seq, input_seq, time_ms, payload``. ``payload`` is the
body as text; a body that is not UTF-8 stands in ``raw`` instead, so every byte is there. The chain value of the day's last segment
is in the Parquet metadata (``apportion_chain``), the file's own hash in the manifest. DuckDB writes them; nothing reads them back
into a core: the segments are the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np

from apportion.adapters.logs.claims import times
from apportion.adapters.logs.manifest import DayEntry, FileEntry, Manifest, file_entry, load, locked
from apportion.adapters.logs.parts import chain_end
from apportion.adapters.logs.segments import opened, read_decisions, read_events
from apportion.core.decisions import decode_batch

FOLDER = "parquet"
_COPY = "copy (from rows order by seq) to '{path}' (format parquet, compression zstd, kv_metadata {{{about}}})"


def complete(directory: Path) -> list[FileEntry]:
    """Write the Parquet files of every sealed day that has none yet; returns the new ones. Raises ``LogMismatch`` on damage."""
    made: list[FileEntry] = []
    with locked(directory):
        manifest = load(directory)
        (directory / FOLDER).mkdir(exist_ok=True)
        previous_ms: int | None = None
        for number, entry in enumerate(manifest.days):
            if entry.sealed and not entry.parquet:
                files = _day(directory, entry, previous_ms, _chains_before(manifest, number))
                days = (*manifest.days[:number], msgspec.structs.replace(entry, parquet=files), *manifest.days[number + 1 :])
                manifest = Manifest(days=days)
                manifest.save(directory)
                made += files
            previous_ms = entry.last_ms
    return made


def _chains_before(manifest: Manifest, number: int) -> tuple[str, str]:
    """Return the chain values of the segments before a day."""
    before = Manifest(days=manifest.days[:number])
    return chain_end(before, "events"), chain_end(before, "decisions")


def _day(directory: Path, entry: DayEntry, previous_ms: int | None, chains: tuple[str, str]) -> tuple[FileEntry, ...]:
    events = f"{FOLDER}/events-{entry.day}.parquet"
    columns = "seq bigint, time_ms bigint, stored_ms bigint, subject varchar, payload varchar, raw blob"
    _write(directory / events, columns, _event_rows(directory, entry, previous_ms, chains[0]), _about(entry, entry.events))
    if not entry.decisions:
        return (file_entry(directory, events),)
    decisions = f"{FOLDER}/decisions-{entry.day}.parquet"
    columns = "seq bigint, input_seq bigint, time_ms bigint, payload varchar, raw blob"
    _write(directory / decisions, columns, _decision_rows(directory, entry, chains[1]), _about(entry, entry.decisions))
    return file_entry(directory, events), file_entry(directory, decisions)


def _about(entry: DayEntry, files: tuple[FileEntry, ...]) -> dict[str, str]:
    return {
        "apportion_chain": files[-1].hash,
        "apportion_day": entry.day,
        "apportion_seqs": f"{entry.first_seq}-{entry.last_seq}",
        "apportion_digest": entry.digest,
    }


def _write(path: Path, columns: str, parts: Iterator[dict[str, Any]], about: dict[str, str]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with duckdb.connect() as con:
        con.execute(f"create table rows ({columns})")
        for part in parts:
            con.register("part", part)
            con.execute("insert into rows by name from part")
            con.unregister("part")
        said = ", ".join(f"{name}: '{value}'" for name, value in about.items())
        con.execute(_COPY.format(path=str(temporary).replace("'", "''"), about=said))
    temporary.replace(path)


def _texts(bodies: list[bytes]) -> dict[str, Any]:
    """Return bodies as text where they are UTF-8, as bytes where they are not."""
    payload, raw = np.empty(len(bodies), dtype=object), np.empty(len(bodies), dtype=object)
    for at, body in enumerate(bodies):
        try:
            payload[at] = body.decode()
        except UnicodeDecodeError:
            raw[at] = body
    return {"payload": payload, "raw": raw} if any(body is not None for body in raw) else {"payload": payload}


def _event_rows(directory: Path, entry: DayEntry, previous_ms: int | None, chain: str) -> Iterator[dict[str, Any]]:
    first_seq = entry.first_seq
    for file in entry.events:
        segment = opened(directory / file.name, "events", first_seq, chain)
        records, chain = read_events(segment), file.hash
        first_seq = records[-1].seq + 1
        counted = list(times(records, previous_ms, stated=entry.stated))
        previous_ms = counted[-1]
        yield {
            "seq": np.array([record.seq for record in records], dtype=np.int64),
            "time_ms": np.array(counted, dtype=np.int64),
            "stored_ms": np.array([record.stored_ms for record in records], dtype=np.int64),
            "subject": np.array([record.subject for record in records], dtype=object),
            **_texts([record.body for record in records]),
        }


def _decision_rows(directory: Path, entry: DayEntry, chain: str) -> Iterator[dict[str, Any]]:
    for file in entry.decisions:
        batches = read_decisions(opened(directory / file.name, "decisions", 0, chain))
        chain = file.hash
        yield {
            "seq": np.array([batch.seq for batch in batches], dtype=np.int64),
            "input_seq": np.array([batch.input_seq for batch in batches], dtype=np.int64),
            "time_ms": np.array([decode_batch(batch.body).time_ms for batch in batches], dtype=np.int64),
            **_texts([batch.body for batch in batches]),
        }
