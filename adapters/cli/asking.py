"""Where reads come from: the projector over NATS while one runs, else the projection's file itself.

``opened`` finds the way once per command. A file that is read without its projector is said so on stderr, with its own
sequence: old data is never passed off as new. Nothing here writes, and nothing starts a server.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from apportion.adapters.cli.failure import FAILED, STALE, UNREACHABLE, USAGE, Failure, unreachable, usage
from apportion.adapters.cli.output import AsOf
from apportion.adapters.cli.verbs import Place, ReadPlace
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.bus.connection import Connection

ASK_TIMEOUT_S = 30.0
KNOCK_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Reply:
    """Rows of one named query, and how far they reach."""

    columns: Sequence[str]
    rows: list[dict[str, Any]]
    as_of: AsOf
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> dict[str, Any] | None:
        """The first row, or None."""
        return self.rows[0] if self.rows else None


class Source(Protocol):
    """Anything that answers named queries."""

    async def ask(self, name: str, **params: Any) -> Reply:
        """Answer query ``name``. Raises ``Failure``."""
        ...


def server_url(place: Place) -> str | None:
    """Return the URL of the server to use: the one named, else the one running for the directory, else None."""
    if place.server:
        return place.server
    from apportion.adapters.bus.server import EmbeddedServer

    running = EmbeddedServer.running(place.home)
    return running.url if running is not None else None


def no_server(place: Place) -> Failure:
    """Return the failure for a directory without a running server."""
    from apportion.adapters.logs.manifest import is_archive

    if is_archive(place.home.root):
        return unreachable(
            f"{place.home.root} is an archive: it holds the logs, and no projection answers from it",
            "verify, replay, cycle, what-if, events and audit read an archive; or name an installation with --dir",
        )
    return unreachable(
        f"no server runs for {place.home.root}",
        "`apportion up` starts one; --dir DIR names another directory, --server URL another server",
    )


@asynccontextmanager
async def connected(place: Place) -> AsyncIterator[Connection]:
    """Connect to the server of ``place``. Raises ``Failure`` (3) when there is none or it does not answer."""
    url = server_url(place)
    if url is None:
        raise no_server(place)
    _knock(url)
    from apportion.adapters.bus.connection import BusUnreachable, Connection

    try:
        connection = await Connection.open(url, name="apportion-cli")
    except BusUnreachable as error:
        raise unreachable(str(error), "start it with `apportion up`, or check --server") from None
    async with connection:
        yield connection


def _knock(url: str) -> None:
    """Fail at once when nobody listens: the client library would try again until its time is over."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        port = parts.port or 4222
    except ValueError:
        raise usage(f"{url!r} is not a server's URL", "write it like nats://127.0.0.1:4222") from None
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", port), timeout=KNOCK_TIMEOUT_S).close()
    except OSError as error:
        raise unreachable(
            f"no NATS server answers at {url} ({error.strerror or error})",
            "start it with `apportion up`, or check --server",
        ) from None


@dataclass(frozen=True)
class Opened:
    """A way to ask, with the connection behind it when there is one."""

    place: Place
    connection: Connection | None
    file: Any = None  # an open projection file
    noted: dict[str, None] = field(default_factory=dict)  # what was told once

    async def ask(self, name: str, **params: Any) -> Reply:
        """Answer query ``name`` as of the place's ``--at`` or ``--seq``. Raises ``Failure``."""
        place = self.place
        given = (("at_ms", place.at_ms), ("seq", place.seq)) if isinstance(place, ReadPlace) else ()
        moment = {key: value for key, value in given if value is not None}
        reply = await self._ask(name, {**moment, **params})
        if moment and not reply.as_of.seq:
            raise usage(f"nothing had been decided yet {_then(moment)}", "name a later moment; `apportion cycle 1` tells the first")
        return reply

    async def newest(self) -> AsOf:
        """Return how far the newest data reaches, whatever moment is asked for."""
        return (await self._ask("pools", {})).as_of

    async def _ask(self, name: str, params: dict[str, Any]) -> Reply:
        if self.connection is None:
            return answered(self.file, name, params)
        try:
            return await asked(self.connection.client, name, **params)
        except Failure as failure:
            if failure.code != UNREACHABLE or not isinstance(self.place, ReadPlace) or self.place.server:
                raise
            return self._without_projector(failure, name, params)

    def _without_projector(self, failure: Failure, name: str, params: dict[str, Any]) -> Reply:
        """Read the projection's file although a server runs: nobody answers, so perhaps nobody has it open."""
        if not self.place.home.projection.is_file():
            raise failure
        try:
            with projection_file(self.place) as file:
                reply = answered(file, name, params)
        except Failure as second:
            raise failure if second.code == UNREACHABLE else second from None
        if "no projector" not in self.noted:
            self.noted["no projector"] = None
            warn(self.place, f"{failure.what}; reading the projection file as it was left")
        return reply

    async def wait(self, seq: int, timeout_ms: int) -> bool:
        """Wait until the data reaches record ``seq``; False when it does not in time."""
        if self.connection is None:
            return False
        reply = await asked(
            self.connection.client, "wait", timeout_s=timeout_ms / 1000 + 2, seq=seq, timeout_ms=timeout_ms
        )
        return reply.as_of.seq >= seq


def _then(moment: dict[str, int]) -> str:
    return f"at {render.when(moment['at_ms'])}" if "at_ms" in moment else f"at seq {moment['seq']:,}"


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Opened]:
    """Find the way to the data: the projector of a running server, else the projection's file. Raises ``Failure`` (3).

    An instant that lies beyond the data is answered with the newest, and that is said on stderr.
    """
    async with _way_to(place) as source:
        if isinstance(place, ReadPlace) and place.at_ms is not None and not place.as_json:
            newest = await source.newest()
            if newest.seq and place.at_ms > newest.time_ms:
                warn(place, f"{render.when(place.at_ms)} is after the newest cycle, {render.when(newest.time_ms)}, which is shown")
        yield source


@asynccontextmanager
async def _way_to(place: Place) -> AsyncIterator[Opened]:
    if server_url(place) is not None:
        async with connected(place) as connection:
            yield Opened(place, connection)
        return
    if not place.home.projection.is_file():
        raise no_server(place)
    warn(place, f"no server runs for {place.home.root}; reading its projection file as it was left")
    with projection_file(place) as file:
        yield Opened(place, None, file)


@contextmanager
def projection_file(place: Place) -> Iterator[Any]:
    """Open the projection's file read-only, without its projector. Raises ``Failure`` (3) when it cannot be."""
    import duckdb

    try:
        file = duckdb.connect(str(place.home.projection), read_only=True)
        file.execute("select mart.readable_seq(), last_seq from meta.journal limit 1")
    except duckdb.Error as error:
        raise unreachable(
            f"{place.home.projection} cannot be read: {str(error).splitlines()[0]}",
            "a projector may hold it (then give it a moment); otherwise `apportion up` builds it again from the log",
        ) from None
    with closing(file):
        yield file


async def asked(client: Any, name: str, *, timeout_s: float = ASK_TIMEOUT_S, **params: Any) -> Reply:
    """Ask the projector over NATS. Raises ``Failure``: 3 when nobody answers, 2 or 1 for what the projector refuses."""
    from apportion.adapters.projector.asking import NoAnswer, ask

    try:
        document = await ask(client, name, params, timeout_s=timeout_s)
    except NoAnswer as error:
        raise unreachable(str(error), "`apportion up` (or `apportion project`) runs the projector") from None
    return reply_of(document)


def answered(file: Any, name: str, params: dict[str, Any]) -> Reply:
    """Answer from an open projection file. Raises ``Failure`` (2) for what the query refuses."""
    from apportion.projections import audit, queries

    params = dict(params)
    try:
        if name == "audit":
            table = audit.audit(file, params.get("check")).table()
        else:
            table = queries.run(file, name, seq=params.pop("seq", None), at_ms=params.pop("at_ms", None), **params)
    except queries.QueryRefused as error:
        raise Failure(STALE if "not projected yet" in str(error) else USAGE, str(error)) from None
    lag = "select coalesce(max(last_seq) - mart.readable_seq(), 0) from meta.journal"
    as_of = AsOf(table.as_of_seq, table.as_of_ms, lag=file.execute(lag).fetchone()[0], note="no projector runs")
    return Reply(list(table.columns), table.dicts(), as_of, {"types": list(table.types)})


def reply_of(document: dict[str, Any]) -> Reply:
    """Return the projector's reply, or raise what it refused as ``Failure``."""
    error = document.get("error")
    if error is not None:
        code = CODES.get(str(error.get("kind", "")), FAILED)
        raise Failure(code, str(error.get("what", "the projector refused")), str(error.get("do", "")))
    at = document.get("as_of") or {}
    as_of = AsOf(
        int(at.get("seq") or 0), int(at.get("time_ms") or 0), int(at.get("lag") or 0), int(at.get("lag_ms") or 0)
    )
    more = {key: value for key, value in document.items() if key not in ("columns", "rows", "as_of")}
    return Reply(list(document["columns"]), [dict(row) for row in document["rows"]], as_of, more)


def warn(place: Place, text: str) -> None:
    """Tell a person something beside the answer, on stderr; a script finds it in the answer's ``as_of``."""
    if not place.as_json:
        sys.stderr.write(f"note: {text}\n")


CODES = {"usage": USAGE, "stale": STALE, "time": FAILED, "failed": FAILED}
