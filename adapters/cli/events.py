"""Verbs on the log itself: events tail|show|export.

They read EVENTS (not the projection), so heartbeats and refused records are there too, byte for byte. ``export`` writes
NDJSON that can be read again; nothing is ever written to the log here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.deciding import decision_of
from apportion.adapters.cli.failure import Failure, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import Logs, open_logs
from apportion.adapters.cli.telling import decision_lines
from apportion.adapters.cli.verbs import Place, verb, whole
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.core.envelope import Record

PANEL = "Look"
READ_LIMIT = 2_000
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="Only this type, or all that start so; repeat for more"),
]
ByOption = Annotated[str, typer.Option("--by", metavar="NAME", help="Only events of this principal")]
Heartbeats = Annotated[bool, typer.Option("--heartbeats", help="Heartbeats and ticks too")]
_NOISE = ("node.heartbeat", "clock.tick")


def add_to(app: typer.Typer) -> None:
    """Register the group ``events``."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The log: every event as it was published.")
    group.command("tail")(verb(tail))
    group.command("show")(verb(show))
    group.command("export")(verb(export))
    app.add_typer(group, name="events", rich_help_panel=PANEL)


async def is_stated(logs: Logs) -> bool:
    """Tell whether the log's time is what producers state (imports, the demo) instead of when records were stored."""
    first = await logs.events.read(0, 1) if await logs.events.last_seq() else []
    try:
        return bool(first) and json.loads(first[0].body)["data"]["time_source"] == "stated"
    except (ValueError, KeyError, TypeError):
        return False


def document_of(record: Record, stated: bool = False) -> dict[str, Any]:
    """Return a record as JSON shows it; a body that is not JSON is kept as text under ``raw``.

    ``time_ms`` is the log's time as far as one record can tell: stored, or stated by its producer.
    """
    from apportion.core.envelope import split_subject

    named = split_subject(record.subject)
    document: dict[str, Any] = {
        "seq": record.seq,
        "time_ms": record.stored_ms,
        "stored_ms": record.stored_ms,
        "subject": record.subject,
        "principal": named[0] if named else None,
        "type": named[1] if named else None,
    }
    try:
        document["body"] = json.loads(record.body)
    except ValueError:
        document["raw"] = record.body.decode("utf-8", "replace")
    body = document.get("body")
    if stated and isinstance(body, dict) and isinstance(body.get("at_ms"), int):
        document["time_ms"] = body["at_ms"]
    return document


def line_of(record: Record, stated: bool = False) -> str:
    """Return a record as one line for people: when, who, what, about what."""
    document = document_of(record, stated)
    body = document.get("body")
    data = body.get("data") if isinstance(body, dict) else None
    if isinstance(data, dict):
        said = " ".join(
            f"{render.heading(name)}={_short(name, value)}"
            for name, value in data.items()
            if value not in ("", None, [], {})
        )
    else:
        said = "unreadable: " + render.clean(document.get("raw", json.dumps(body))[:200])
    who = render.clean(str(document["principal"] or "?"))
    what = render.clean(str(document["type"] or document["subject"]))
    return f"{record.seq:>5} {render.when(document['time_ms'])[11:19]} {who:<9} {what:<18} {said}"


def _short(name: str, value: Any) -> str:
    if isinstance(value, list) and name == "command":
        return render.clean(" ".join(str(part) for part in value))[:80]
    if isinstance(value, list):
        return ",".join(render.clean(str(part)) for part in value)[:80]
    return render.cell(name, value).replace(" %", "%")[:80]


def wanted(record: Record, types: list[str], by: str, heartbeats: bool) -> bool:
    """Tell whether a record passes the filters."""
    parts = record.subject.split(".", 3)
    event_type = parts[3] if len(parts) == 4 else ""
    if types:
        if not any(event_type == one or event_type.startswith(one.rstrip("*")) for one in types):
            return False
    elif not heartbeats and event_type in _NOISE:
        return False
    return not by or (len(parts) == 4 and parts[2] == by)


async def tail(
    place: Place,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", parser=whole(0), metavar="N", help="Start with the last N")
    ] = 20,
    type_: TypeOption = None,
    by: ByOption = "",
    heartbeats: Heartbeats = False,
) -> Answer:
    """Show the newest events; heartbeats and ticks are left out unless asked for."""
    types = type_ or []
    async with open_logs(place) as logs:
        last_seq, stated = await logs.events.last_seq(), await is_stated(logs)
        found = await _newest(logs, last_seq, lines, types, by, heartbeats)
        if not follow:
            time_ms = int(document_of(found[-1], stated)["time_ms"]) if found else 0
            answer = Answer([Section([document_of(record, stated) for record in found], ["seq", "principal", "type"])])
            answer.as_of = AsOf(last_seq, time_ms)
            if not place.as_json:
                answer.sections = []
                answer.lines = [_fitted(line_of(record, stated)) for record in found] or [
                    "no such event in the log yet"
                ]
            return answer
        for record in found:
            _print(record, place.as_json, stated)
        async for records in _following(logs, last_seq):
            for record in records:
                if wanted(record, types, by, heartbeats):
                    _print(record, place.as_json, stated)
    return Answer()


def _print(record: Record, as_json: bool, stated: bool) -> None:
    """Print one record: a line of NDJSON, or of text."""
    text = json.dumps(document_of(record, stated), ensure_ascii=False) if as_json else _fitted(line_of(record, stated))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fitted(line: str) -> str:
    from apportion.adapters.cli.output import terminal_width

    width = terminal_width(sys.stdout)
    return line if width is None or len(line) <= width else line[: max(20, width - 1)] + "\N{HORIZONTAL ELLIPSIS}"


async def _newest(logs: Logs, last_seq: int, count: int, types: list[str], by: str, heartbeats: bool) -> list[Record]:
    """Return the last ``count`` records that pass, reading backwards in chunks."""
    found: list[Record] = []
    end = last_seq
    while end > 0 and len(found) < count:
        start = max(0, end - READ_LIMIT)
        chunk: list[Record] = []
        while start + len(chunk) < end:
            chunk += await logs.events.read(start + len(chunk), end - start - len(chunk))
        found = [record for record in chunk if wanted(record, types, by, heartbeats)] + found
        end = start
    return found[-count:] if count else []


async def _following(logs: Logs, after_seq: int) -> AsyncIterator[list[Record]]:
    """Yield new records as they come, until the reader goes away."""
    import asyncio

    while True:
        records = await logs.events.read(after_seq, READ_LIMIT)
        if records:
            after_seq = records[-1].seq
            yield records
        else:
            await asyncio.sleep(0.2)


async def show(
    place: Place, seq: Annotated[int, typer.Argument(parser=whole(1), metavar="SEQ", help="The record's sequence")]
) -> Answer:
    """Show one record of the log, and what the core decided about it."""
    async with open_logs(place) as logs:
        last_seq = await logs.events.last_seq()
        if seq > last_seq:
            raise usage(f"seq {seq:,} is beyond the log, which ends at {last_seq:,}", "`apportion events tail`")
        record, stated = (await logs.events.read(seq - 1, 1))[0], await is_stated(logs)
    document = document_of(record, stated)
    answer = Answer(text=render.clean_lines(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
    try:
        async with opened(place) as source:
            reply = await source.ask("decision_of", event_seq=seq)
    except Failure:  # the record itself needs no projection
        answer.document, answer.as_of = document, AsOf(last_seq, document["time_ms"])
        return answer
    decisions = [decision_of(row) for row in reply.rows if row["type"] != "accepted"]
    for decision in decisions:
        answer.lines += decision_lines(str(decision.get("workload") or document["type"]), decision)
    if not decisions:
        answer.lines = ["the core accepted it" if reply.rows else "no cycle has answered it yet"]
    answer.document = {**document, "decisions": decisions, "decided": bool(reply.rows)}
    answer.as_of = reply.as_of
    return answer


async def export(
    place: Place,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here [default: stdout]")
    ] = None,
    from_seq: Annotated[int, typer.Option("--from", parser=whole(1), metavar="SEQ", help="First record")] = 1,
    to_seq: Annotated[
        int | None, typer.Option("--to", parser=whole(1), metavar="SEQ", help="Last record [default: the newest]")
    ] = None,
    type_: TypeOption = None,
    by: ByOption = "",
) -> Answer:
    """Write events as NDJSON, one record a line, heartbeats and ticks included."""
    from apportion.adapters.past.driving import Progress

    types = type_ or []
    written = 0
    async with open_logs(place) as logs:
        last_seq, stated = await logs.events.last_seq(), await is_stated(logs)
        end = last_seq if to_seq is None else to_seq
        if not from_seq <= end <= last_seq:
            raise usage(
                f"records {from_seq:,} to {end:,} are not all in the log, which has 1 to {last_seq:,}", "--from, --to"
            )
        target = sys.stdout if out is None else _opened(out)
        try:
            with progress("export", quiet=out is None or place.as_json) as report:
                at = from_seq - 1
                while at < end:
                    records = await logs.events.read(at, min(READ_LIMIT, end - at))
                    for record in records:
                        if wanted(record, types, by, True):
                            target.write(json.dumps(document_of(record, stated), ensure_ascii=False) + "\n")
                            written += 1
                    at = records[-1].seq
                    report(Progress(events=at - from_seq + 1, seq=at, last_seq=end, time_ms=records[-1].stored_ms))
        finally:
            if out is not None:
                target.close()
    if out is None:
        return Answer(document=None if not place.as_json else {}, as_of=AsOf(end, 0))
    document = {"events": written, "from_seq": from_seq, "to_seq": end, "file": str(out)}
    return Answer(lines=[f"{render.many(written, 'event')} in {out}"], document=document, as_of=AsOf(end, 0))


def _opened(path: Path) -> Any:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot write {path}: {error.strerror}", "choose another file with --out") from None
