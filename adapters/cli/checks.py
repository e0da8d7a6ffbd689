"""Verbs for what proofs rest on: snapshot, doctor, schema, config.

They read logs, settings and this program's own words, and say what holds; a check that fails exits with 1. Nothing is repaired
here, and all of them work with the server stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli import cycles, past
from apportion.adapters.cli.failure import FAILED, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.proving import last_of
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import is_archive, open_logs
from apportion.adapters.cli.verbs import Place, use_kernels, verb
from apportion.adapters.text import render

PANEL = "Check and replay"


def add_to(app: typer.Typer) -> None:
    """Register the verbs, and those that show what the core saw."""
    past.add_to(app)
    cycles.add_to(app)
    app.command("snapshot", rich_help_panel=PANEL)(verb(snapshot))
    app.command("doctor", rich_help_panel="Help")(verb(doctor))
    app.command("schema", rich_help_panel="Help")(verb(schema))
    config = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Configuration, resolved.")
    config.command("show")(verb(config_show))
    app.add_typer(config, name="config", rich_help_panel="Help")


async def snapshot(
    place: Place,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the bytes to this file instead")
    ] = None,
) -> Answer:
    """Make a snapshot of the core's state at the end of the log."""
    use_kernels()
    from apportion.adapters.past.replaying import state_and_position
    from apportion.adapters.past.snapshots import DiskSnapshots, record_hash

    if out is None and is_archive(place.home.root):
        raise usage(f"{place.home.root} is an archive, which stays as it is", "--out FILE writes the snapshot elsewhere")
    store = DiskSnapshots(place.home.snapshots)
    newest = store.load_with_meta()
    async with open_logs(place) as logs:
        await last_of(logs)
        with progress("snapshot", quiet=place.as_json) as show:
            core, position = await state_and_position(
                logs.events, logs.decisions, None, newest[1] if newest else None, show
            )
        record = (await logs.events.read(core.seq - 1, 1))[0]
    data, digest = core.snapshot(), core.digest()
    if out is None:
        decision_seq = position or (newest[0].decision_seq if newest else 0)
        store.save(core.seq, data, record_hash=record_hash(record.subject, record.body), decision_seq=decision_seq)
        where = str(place.home.snapshots)
    else:
        _write_file(out, data)
        where = str(out)
    document = {"seq": core.seq, "time_ms": core.time_ms, "bytes": len(data), "digest": digest, "where": where}
    return Answer(
        lines=[f"snapshot of seq {core.seq:,}, {len(data):,} bytes, in {where}", f"state digest {digest}"],
        document=document,
        as_of=AsOf(core.seq, core.time_ms),
    )


def _write_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise usage(f"cannot write {path}: {error.strerror}", "choose another file with --out") from None


async def doctor(place: Place) -> Answer:
    """Check versions, disk, clock, server, streams and projector."""
    from apportion.adapters.cli.doctoring import examine

    findings = await examine(place)
    rows = [vars(finding) for finding in findings]
    bad = [finding for finding in findings if finding.state == "bad"]
    section = Section(rows, ["state", "check", "detail"], key="checks")
    after = [f"{finding.check}: {finding.do}" for finding in findings if finding.do and finding.state != "ok"]
    return Answer([section], after=after, more={"ok": not bad}, code=FAILED if bad else 0)


async def schema(
    place: Place,
    type_: Annotated[
        str, typer.Argument(metavar="TYPE", help="An event or decision type, `batch`, or `asyncapi`; without: a list")
    ] = "",
) -> Answer:
    """Print the JSON Schema of an event or decision, or AsyncAPI."""
    from apportion.adapters.ingress import schemas
    from apportion.core.events import EVENTS, NEWEST

    if type_ == "asyncapi":
        from apportion.adapters.ingress.asyncapi import asyncapi_document

        return _document(asyncapi_document())
    if type_ == "batch":
        return _document(schemas.batch_schema())
    name, _, wanted = type_.partition(".v") if ".v" in type_ else (type_, "", "")
    if name in NEWEST:
        version = int(wanted) if wanted.isdigit() else NEWEST[name]
        if (name, version) not in EVENTS:
            raise usage(f"{name} has no version {version}", f"its newest is {NEWEST[name]}")
        return _document(schemas.event_schema(name, version))
    if name in schemas.DECISIONS:
        return _document(schemas.decision_schema(name))
    if type_:
        from apportion.adapters.cli.finding import nearest

        raise nearest(type_, [*NEWEST, *schemas.DECISIONS], "type", "`apportion schema` lists them")
    rows = [
        *({"type": event_type, "v": version, "kind": "event", "about": _about(event)}
          for (event_type, version), event in EVENTS.items()),
        *({"type": tag, "v": 1, "kind": "decision", "about": _about(decision)}
          for tag, decision in schemas.DECISIONS.items()),
    ]  # fmt: skip
    after = ["`apportion schema TYPE` prints one; `apportion schema asyncapi` the document of all channels"]
    return Answer([Section(rows, ["type", "v", "kind", "about"])], after=after)


def _document(document: dict[str, Any]) -> Answer:
    return Answer(text=render.json_text(document), document=document)


def _about(struct: type) -> str:
    return (struct.__doc__ or "").strip().split("\n")[0].replace("``", "")


async def config_show(place: Place) -> Answer:
    """Show where everything is, and which environment variables are in force."""
    import os

    from apportion.adapters.cli.asking import server_url
    from apportion.adapters.cli.verbs import principal_now

    home = place.home
    rows = [
        {"name": "directory", "value": str(home.root), "from": _from("APPORTION_DIR")},
        {"name": "server", "value": server_url(place) or "none runs here", "from": _from("APPORTION_SERVER")},
        {"name": "principal", "value": principal_now(None), "from": _from("APPORTION_PRINCIPAL")},
        *({"name": name, "value": str(getattr(home, name)), "from": "directory"}
          for name in ("jetstream", "projection", "published", "snapshots", "agents", "logs")),
        {"name": "archive", "value": str(home.archive), "from": _from("APPORTION_ARCHIVE")},
        {"name": "colour", "value": "off" if os.environ.get("NO_COLOR") else "on a terminal", "from": _from("NO_COLOR")},
    ]  # fmt: skip
    return Answer([Section(rows, ["name", "value", "from"], key="config")])


def _from(variable: str) -> str:
    import os

    return f"${variable}" if os.environ.get(variable) else "default"
