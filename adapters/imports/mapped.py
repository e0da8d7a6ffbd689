"""Any CSV of jobs, by a map from our fields to its columns: ``job=job_id,submit=submit_time,duration=run_s,gpus=num_gpu``.

Decides what each mapped value means; a pure function of the lines and the map. A record is one line: a quoted line end is
refused with its line, for a file that lost a quote would else vanish into one field. Without ``start`` a job counts from its
submission, as traces without waits do, and that is noted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from apportion.adapters.imports.attempt import (
    MAX_COUNT,
    Attempt,
    BadFile,
    Note,
    Passed,
    Read,
    Unread,
    checked,
    count,
)
from apportion.adapters.imports.instants import UNKNOWN, Zone, duration_ms
from apportion.adapters.imports.lines import Line, read_each

FIELDS = {
    "job": "its number or name (needed)", "submit": "when it was submitted", "eligible": "when it could have started",
    "start": "when it started", "end": "when it ended", "duration": "how long it ran: seconds or [d-]hh:mm:ss",
    "gpus": "GPUs, parts allowed", "gpus_milli": "GPUs in thousandths", "cpus": "CPUs", "nodes": "nodes",
    "gpu_type": "class of GPU", "cluster": "which cluster", "user": "who", "account": "who pays: account, project, PI",
    "group": "group", "qos": "quality of service", "queue": "queue or partition", "state": "how it ended", "name": "its name",
    "exit": "exit code", "node_list": "where it ran", "label": "its number as users know it",
}  # fmt: skip
TEXTS = ("label", "name", "user", "account", "group", "qos", "queue", "state", "exit", "gpu_type", "node_list")


def parse_map(text: str) -> dict[str, str]:
    """Return field -> column for ``k=v,k=v``. Raises ``ValueError`` for an unknown field or none at all."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, column = part.strip().partition("=")
        if not equals or not column:
            raise ValueError(
                f"{part!r} is not FIELD=COLUMN; write for example job=job_id,submit=submit_time,gpus=num_gpu"
            )
        if name not in FIELDS:
            raise ValueError(f"{name!r} is no field; there are {', '.join(FIELDS)}")
        if name in found:
            raise ValueError(f"{name} is mapped twice, to {found[name]!r} and {column!r}; keep one")
        found[name] = column
    missing = [name for name in ("job",) if name not in found]
    if not {"submit", "start"} & found.keys():
        missing.append("submit or start")
    if missing:
        raise ValueError(f"{text!r} maps no {', no '.join(missing)}; nothing can be told from other jobs without it")
    if {"gpus", "gpus_milli"} <= found.keys():
        raise ValueError("gpus and gpus_milli are both mapped; keep one")
    return found


def read(
    lines: Iterable[Line], mapping: Mapping[str, str], zone: Zone, cluster: str, note: Note, delimiter: str = ","
) -> Iterator[Read]:
    """Yield what each line is. Raises ``BadFile`` when the first line lacks a mapped column."""
    row: Row | None = None

    def understood(line: Line) -> Read:
        nonlocal row
        try:
            fields = next(csv.reader([line.text], delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            if row is None:
                raise BadFile(f"line {line.number} is no heading of a CSV: {error}") from None
            raise Unread(f"it is no record of its own ({error}); a record must be one line") from None
        if row is None:
            row = Row([name.strip().removeprefix("\ufeff") for name in fields], mapping, zone, cluster, note)
            return Passed(line.number, "heading")
        return row.attempt(fields, line.number)

    return read_each(lines, understood)


class Row:
    """Reads records of one heading."""

    def __init__(
        self, columns: Sequence[str], mapping: Mapping[str, str], zone: Zone, cluster: str, note: Note
    ) -> None:
        """Raises ``BadFile`` naming the columns that are not there."""
        missing = [column for column in mapping.values() if column not in columns]
        if missing:
            raise BadFile(
                f"the file has no column {', '.join(missing)}; its first line names {', '.join(columns)[:300]}"
            )
        self._at = {name: list(columns).index(column) for name, column in mapping.items()}
        self._columns, self._zone, self._cluster, self._note = columns, zone, cluster, note

    def attempt(self, fields: list[str], number: int) -> Attempt:
        """Return the attempt of one record; raises ``Unread``."""
        if len(fields) != len(self._columns):
            raise Unread(f"it has {len(fields)} fields, the heading has {len(self._columns)}")
        value = {name: fields[at].strip() for name, at in self._at.items()}
        submit_ms, start_ms, end_ms, elapsed_ms = self._times(value)
        return checked(
            Attempt(
                value.get("cluster") or self._cluster, value["job"], submit_ms, start_ms, end_ms,
                self._zone.ms(value.get("eligible", ""), "eligible"), elapsed_ms,
                nodes=_count(value, "nodes"), cpus=_count(value, "cpus"), gpus_milli=_gpus_milli(value), line=number,
                **{name: value.get(name, "") for name in TEXTS},
            )
        )  # fmt: skip

    def _times(self, value: Mapping[str, str]) -> tuple[int, int | None, int | None, int | None]:
        ms = self._zone.ms
        submit_ms, start_ms, end_ms = (ms(value.get(name, ""), name) for name in ("submit", "start", "end"))
        elapsed_ms = duration_ms(value.get("duration", ""), "duration")
        if submit_ms is None and start_ms is None:
            raise Unread("neither submit nor start is known")
        if start_ms is None and "start" not in self._at and (elapsed_ms is not None or end_ms is not None):
            self._note("no column for start: counted from submission")
            start_ms = submit_ms
        if end_ms is None and start_ms is not None and elapsed_ms is not None:
            end_ms = start_ms + elapsed_ms
        if submit_ms is None:
            self._note("no submission: taken to be the start")
            submit_ms = start_ms
        assert submit_ms is not None  # one of the two is known
        return submit_ms, start_ms, end_ms, elapsed_ms


def _count(value: Mapping[str, str], name: str) -> int:
    text = value.get(name, "")
    if text.lower() in UNKNOWN:
        return 0
    return count(text.removesuffix(".0"), name)


def _gpus_milli(value: Mapping[str, str]) -> int:
    name, scale = ("gpus_milli", 1) if "gpus_milli" in value else ("gpus", 1_000)
    text = value.get(name, "")
    if text.lower() in UNKNOWN:
        return 0
    try:
        amount = Decimal(text) * scale
        if not 0 <= amount <= MAX_COUNT or amount != int(amount):
            raise Unread(f"{name} is {text[:40]!r}, not a number of GPUs in whole thousandths")
        return int(amount)
    except (InvalidOperation, OverflowError, ValueError):
        raise Unread(f"{name} is {text[:40]!r}, not a number of GPUs") from None
