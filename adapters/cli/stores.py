"""The two logs of an installation, whether its server runs or not, or of an archive.

``open_logs`` uses the running server; when none runs for the directory but its store is there, the embedded server is
started on that store for the duration and stopped again. A directory that is an archive is read as it is.
It never creates a store: a directory without one is the user's mistake, and is said so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apportion.adapters.cli.asking import connected, server_url
from apportion.adapters.cli.failure import FAILED, Failure, unreachable
from apportion.adapters.cli.verbs import Place, use_kernels

if TYPE_CHECKING:
    from apportion.adapters.bus.connection import Connection
    from apportion.core.ports import DecisionLog, EventLog


ARCHIVE = Annotated[
    Path | None, typer.Argument(metavar="ARCHIVE", help="The archive's directory [default: archive in the installation's]")
]


@dataclass(frozen=True)
class Logs:
    """Both logs, and whether a server was already running for them."""

    events: EventLog
    decisions: DecisionLog
    live: bool


@asynccontextmanager
async def open_logs(place: Place) -> AsyncIterator[Logs]:
    """Open the logs of ``place``; what was cut from them is read from their archive. Raises ``Failure`` (3) when there are none."""
    if server_url(place) is None and not place.home.jetstream.is_dir() and is_archive(place.home.root):
        yield _archived(place)
        return
    live = server_url(place) is not None
    async with open_server(place) as connection, _logs_of(place, connection, live=live) as logs:
        yield logs


@asynccontextmanager
async def open_server(place: Place) -> AsyncIterator[Connection]:
    """Connect to the server of ``place``, started on its store for the duration when none runs. Raises ``Failure`` (3)."""
    if server_url(place) is not None:
        async with connected(place) as connection:
            yield connection
        return
    if not place.home.jetstream.is_dir():
        raise unreachable(
            f"{place.home.root} holds no log and no server runs for it",
            "--dir DIR names the directory of an installation (`apportion up` or `apportion demo` makes one) or an archive",
        )
    from apportion.adapters.bus.server import EmbeddedServer, ServerError

    server = EmbeddedServer(place.home)
    try:
        server.start()
    except ServerError as error:
        raise unreachable(str(error), "see its log, or free the port and the disk") from None
    try:
        from apportion.adapters.bus.connection import Connection

        async with await Connection.open(server.url, name="apportion-cli") as connection:
            yield connection
    finally:
        if server.owned:
            server.stop()


def is_archive(directory: Path) -> bool:
    """Tell whether a directory holds an archive (``apportion archive write``) and no installation."""
    from apportion.adapters.logs import manifest

    return manifest.is_archive(directory)


def archive_meant(place: Place, given: Path | None) -> Path:
    """Return the archive meant: the one named, the one of ``--dir``, or the installation's own."""
    if given is not None:
        return given.resolve()
    return place.home.root if is_archive(place.home.root) else place.home.archive


def existing_archive(place: Place, given: Path | None) -> Path:
    """Return the archive meant. Raises ``Failure`` where there is none."""
    directory = archive_meant(place, given)
    if not is_archive(directory):
        raise Failure(FAILED, f"{directory} is no archive", "`apportion archive write` makes one, of the days that are over")
    return directory


def _archived(place: Place) -> Logs:
    use_kernels()  # heartbeats are made again by one
    from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog

    return Logs(ArchiveEventLog(place.home.root), ArchiveDecisionLog(place.home.root), live=False)


@asynccontextmanager
async def _logs_of(place: Place, connection: Connection, *, live: bool) -> AsyncIterator[Logs]:
    from apportion.adapters.bus.archived import joined_decisions, joined_events
    from apportion.adapters.bus.connection import ApiError

    archives = (place.home.archive,)
    events, decisions = joined_events(connection, archives), joined_decisions(connection, archives)
    try:
        yield Logs(events, decisions, live)
    except ApiError as error:
        raise unreachable(
            f"the log at {connection.url} cannot be read: {error.description}",
            "`apportion up` creates the streams; `apportion doctor` checks their settings",
        ) from None
    finally:
        await events.close()
        await decisions.close()
