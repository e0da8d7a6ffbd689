"""The verb that proves: verify, and what it hands out as a proof: a document, signed, and checked later.

Every decision of a range is derived again, on all processors, and compared with the stored bytes. A check that fails exits with
1 and shows both sides. It works with the server stopped; nothing is repaired and no log is written.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.arguments import Mark
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.output import Answer, AsOf
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import Logs, is_archive, open_logs
from apportion.adapters.cli.verbs import Place, typed, use_kernels, verb, whole
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.proving.document import Document
    from apportion.adapters.proving.proof import Proof
    from apportion.adapters.proving.waypoints import Directory, Waypoint

PANEL = "Check and replay"
MAX_WORKERS = 256


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("verify", rich_help_panel=PANEL)(verb(verify))


async def verify(
    place: Place,
    from_: Annotated[
        Mark | None,
        typer.Option(
            "--from", parser=typed(arguments.mark), metavar="SEQ|TIME", help="Start at the newest snapshot at or before it"
        ),
    ] = None,
    to: Annotated[
        Mark | None, typer.Option("--to", parser=typed(arguments.record), metavar="SEQ|TIME", help="Stop after this record")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", parser=whole(1, MAX_WORKERS), metavar="N", help="Processes [default: the processors]"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write what was proved as a document")] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="Sign it with this SSH key; FILE.sig is the signature")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Check such a document instead, against this log")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="PUB", help="With --check: it must be signed by this key")] = None,
) -> Answer:
    """Derive every decision again and compare it with the stored one."""
    if check is not None:
        if any(given is not None for given in (from_, to, workers, out, sign)):
            raise usage("--check reads a document, and takes none of the options that make one", "--check FILE [--key PUB]")
        use_kernels()
        return await _check(place, check, key)
    if sign is not None and out is None:
        raise usage("--sign KEY signs the document that --out FILE writes", f"--out proof.json --sign {sign}")
    if key is not None:
        raise usage("--key PUB says who must have signed a document that is checked", "--check FILE --key PUB")
    signer = _fingerprint(sign) if sign is not None else ""
    use_kernels()
    from apportion.adapters.proving import document as documents
    from apportion.adapters.proving.proof import prove
    from apportion.adapters.proving.waypoints import Foreign, kept, step_of

    directories, at_once = snapshot_directories(place), workers or os.cpu_count() or 1
    async with open_logs(place) as logs:
        last_seq = await last_of(logs)
        to_seq = last_seq if to is None else await seq_of(logs, to, "--to", last_seq)
        from_seq = 0 if from_ is None else await seq_of(logs, from_, "--from", last_seq)
        if from_seq > to_seq:
            raise usage(
                f"the range from seq {from_seq:,} to {to_seq:,} ends before it begins; the log has records 1 to {last_seq:,}",
                "name a range with --from and --to that ends after it begins",
            )
        try:
            start = await _start(place, logs, directories, from_seq)
            apart = step_of(to_seq - start.seq, at_once) // 2
            waypoints = await kept(logs.events, directories, start.seq, to_seq, apart)
        except Foreign as error:
            raise Failure(
                FAILED, str(error),
                "if this log is the right one, move that snapshot away; if not, the log was replaced: compare with its archive",
            ) from None
        with progress("verify", quiet=place.as_json) as show:
            proof = await prove(partial(open_logs, place), start, waypoints, to_seq, at_once, show)
    document = documents.document_of(proof, signer)
    answer = Answer(document=_json(document, proof), code=0 if proof.ok else FAILED)
    answer.lines = _lines(document, proof)
    if out is not None:
        answer.lines += _write(out, documents.to_bytes(document), sign, signer)
    answer.as_of = AsOf(proof.end.seq, proof.end.time_ms)
    return answer


def snapshot_directories(place: Place) -> list[Directory]:
    """Return where snapshots of this log may be: those of the core, and those of its archive."""
    from apportion.adapters.past.snapshots import ARCHIVED
    from apportion.adapters.proving.waypoints import Directory

    home = place.home
    own = Directory(home.snapshots, "the archive" if is_archive(home.root) else "the installation")
    return [own, Directory(home.archive / ARCHIVED, "the archive")]


async def last_of(logs: Logs) -> int:
    """Return the sequence of the log's last record. Raises ``Failure`` for an empty log."""
    last_seq = await logs.events.last_seq()
    if last_seq == 0:
        raise Failure(FAILED, "the log is empty", "`apportion up` opens a log and starts a cluster")
    return last_seq


async def seq_of(logs: Logs, mark: Mark, option: str, last_seq: int) -> int:
    """Return the record that a place in the log names. Raises ``Failure`` (2) when it is outside."""
    from apportion.adapters.logs.moments import seq_at

    if mark.seq is not None:
        if not 0 <= mark.seq <= last_seq:
            raise usage(f"{option} {mark.seq:,} is outside the records 1 to {last_seq:,}", f"{option} {last_seq}")
        return mark.seq
    last = f"{'--seq' if option == '--at' else option} {last_seq} names the last record"
    try:
        seq = await seq_at(logs.events, logs.decisions, mark.at_ms or 0)
    except ValueError as error:
        raise usage(f"{option} {mark.text}: {error}", last) from None
    if seq > last_seq:
        raise usage(f"{option} {mark.text} is seq {seq:,}, after the end of the log at {last_seq:,}", last)
    return seq


async def _start(place: Place, logs: Logs, directories: list[Directory], from_seq: int) -> Waypoint:
    """Return the state to start from: the newest snapshot, else one made by trusting; nothing at 0."""
    from apportion.adapters.past.replaying import state_at
    from apportion.adapters.proving.waypoints import Waypoint, newest

    if from_seq == 0:
        return Waypoint(0, b"", "the first record")
    found = await newest(logs.events, directories, from_seq)
    if found is not None:
        return found
    with progress("start", quiet=place.as_json) as show:
        core = await state_at(logs.events, logs.decisions, from_seq, None, show)
    return Waypoint(core.seq, core.snapshot(), "made by trusting the stored decisions from the first record on")


def _json(document: Document, proof: Proof) -> dict[str, Any]:
    """Return the document as JSON, with how it went and the short names that scripts use."""
    import msgspec

    return {
        "ok": proof.ok, "cycles": document.cycles, "events": document.records, "digest": document.end.digest,
        "from_seq": document.start.seq, "to_seq": document.last_seq, "to_time_ms": document.to_ms,
        "workers": proof.workers, "stretches": proof.stretches, "wall_ms": proof.wall_ms,
        **msgspec.to_builtins(document),
    }  # fmt: skip


def _lines(document: Document, proof: Proof) -> list[str]:
    reach = f"seq {document.first_seq:,} to {document.last_seq:,}" if document.records else "nothing follows that state"
    side = f", in {proof.stretches} stretches by {proof.workers} processes" if proof.workers > 1 else ""
    if not proof.ok:
        lines = difference_lines(proof.first_difference or {}, proof.cycles)
    else:
        what = f"{render.many(document.cycles, 'cycle')} over {render.many(document.records, 'event')} ({reach})"
        lines = [f"ok: {what} {'was' if document.cycles == 1 else 'were'} derived again, byte for byte{side}"]
    lines.append(f"taken on trust: {document.trusted}")
    if proof.ok:
        lines += [f"state digest {document.end.digest}", f"range hash   {document.range_sha256}"]
        code = document.code
        lines.append(f"derived by apportion {code.version}, core {code.core}, sources {code.sources}, kernels {code.build}")
    if document.undecided:
        lines.append("the newest tick has no stored batch yet: its cycle is being decided")
    return lines


def difference_lines(found: dict[str, Any], cycles: int) -> list[str]:
    """Return the first difference in sentences, both sides below each other."""
    where = f"cycle {found['cycle']:,} at seq {found['seq']:,}" if "cycle" in found else f"after seq {found['seq']:,}"
    if found.get("time_ms"):
        where += f" ({render.when(found['time_ms'])})"
    if found["what"] == "core number":
        return _other_core(found, cycles)
    lines = [f"DIFFERENT: {where}; the {render.many(cycles, 'cycle before it is', 'cycles before it are')} right"]
    if found["what"] == "decision":
        lines.append(
            f"decision {found['position'] + 1} of {found['decisions_stored']} stored, {found['decisions_derived']} derived, "
            f"differs in: {', '.join(found['fields'])}"
        )
    else:
        lines.append(f"what differs: {found['what']}" + (f"; {found['detail']}" if found.get("detail") else ""))
    for side in ("stored", "derived"):
        if side in found:
            lines.append(f"  {side + ':':<9}{render.cell(side, found[side])}")
    lines.append(
        "the log and this core do not belong together: another version decided it, or one of the logs was changed; "
        "keep both, and compare with an archive or another copy"
    )
    return lines


def _other_core(found: dict[str, Any], cycles: int) -> list[str]:
    from apportion.adapters.proving.versions import what_to_install
    from apportion.core.fold.setup import CORE_NUMBER

    lines = [
        f"NOT VERIFIED from seq {found['seq']:,} on: the log asks for core {found['core']}, this program is core {CORE_NUMBER}",
        what_to_install(found["core"], CORE_NUMBER),
    ]
    if found["seq"] > 1:
        right = render.many(cycles, "cycle before it is", "cycles before it are")
        lines.append(f"the {right} right; --to {found['seq'] - 1} proves them alone")
    return lines


def _fingerprint(key: Path) -> str:
    """Return the fingerprint of a key, before the long work begins. Raises ``Failure``."""
    from apportion.adapters.proving import signature

    try:
        return signature.fingerprint(key)
    except signature.CannotSign as error:
        raise usage(str(error), "name an SSH key, such as ~/.ssh/id_ed25519 (`ssh-keygen -t ed25519` makes one)") from None


def _write(out: Path, content: bytes, key: Path | None, signer: str) -> list[str]:
    from apportion.adapters.proving import signature

    temporary = out.with_name(out.name + ".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
        if key is None:
            signature.signature_of(out).unlink(missing_ok=True)  # one of another document would only be wrong
            return [f"written to {out}, not signed (--sign KEY signs it)"]
        made = signature.sign(out, key)
    except OSError as error:
        raise usage(f"cannot write {out}: {error.strerror}", "choose another file with --out") from None
    except signature.CannotSign as error:
        raise Failure(FAILED, str(error), f"the document is in {out}, without a signature") from None
    return [f"written to {out}, signed by {signer} in {made.name}"]


async def _check(place: Place, path: Path, key: Path | None) -> Answer:
    """Check a document: whole, signed, and still about this log."""
    from apportion.adapters.proving import document as documents
    from apportion.adapters.proving import signature
    from apportion.adapters.proving.holding import differs

    try:
        document, content = documents.read(path)
        signed = signature.signature_of(path).is_file() or document.signer or key is not None
        by = signature.check(path, content, key) if signed else ""
    except (documents.DocumentInvalid, signature.SignatureInvalid, signature.CannotSign) as error:
        raise Failure(FAILED, str(error), "ask whoever made it for FILE and FILE.sig again, and for the public key") from None
    if document.signer and by != document.signer:
        raise Failure(FAILED, f"{path} says that {document.signer} signed it, but the signature is by {by}", "do not rely on it")
    async with open_logs(place) as logs:
        with progress("check", quiet=place.as_json) as show:
            differing = await differs(document, logs, show)
    return _checked(document, path, by, key, differing)


def _checked(document: Document, path: Path, by: str, key: Path | None, differing: str) -> Answer:
    import msgspec

    told = "the same" if document.result == "same" else "DIFFERENT"
    lines = [
        f"{path}: {render.many(document.cycles, 'cycle')} over seq {document.first_seq:,} to {document.last_seq:,} of log "
        f"{document.log_id}, "
        f"derived by apportion {document.code.version}, core {document.code.core}, were {told}",
        f"taken on trust: {document.trusted}",
        _who(by, key),
        f"LOG DIFFERS: {differing}" if differing else "this log holds exactly that range: the chain over its records and the hash "
        "of its decisions are those of the document",
        "nothing was derived here; "
        + (f"`apportion verify --from {document.start.seq} --to {document.last_seq}` does that"),
    ]  # fmt: skip
    ok = not differing and document.result == "same"
    return Answer(
        lines=lines,
        document={
            "ok": ok, "signed_by": by, "signer_checked": bool(by and key), "log_differs": differing,
            "document": msgspec.to_builtins(document),
        },
        code=0 if ok else FAILED,
        as_of=AsOf(document.last_seq, document.to_ms),
    )  # fmt: skip


def _who(by: str, key: Path | None) -> str:
    if not by:
        return "it is not signed: whoever had the file may have written it"
    if key is None:
        return f"signed by {by}, and unchanged since; --key PUB checks that this is the key of somebody you know"
    return f"signed by {by}, the key in {key}, and unchanged since"
