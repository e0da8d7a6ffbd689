"""Where live reads listen: the socket, who may ask, and the file that tells where.

On loopback anybody on this machine may ask. Elsewhere a bearer token is asked for, kept in a file that only its owner can read;
without one nothing listens. There is no encryption here: across machines a proxy with TLS belongs in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home
from apportion.core.errors import ApportionError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
TOKEN_MIN = 16
CONNECTIONS_MAX = 64
HEAD_BYTES_MAX = 32 * 1024
CLOSE_S = 2


class CannotListen(ApportionError):
    """Live reads cannot be offered as asked: the address, or the token."""


class Door(NamedTuple):
    """Where to listen, and the token to ask for; '' = none, on loopback only."""

    host: str = LOOPBACK
    port: int = 0  # 0 = a free one
    token: str = ""


class Listening(msgspec.Struct, frozen=True):
    """What the home's ``http_file`` says."""

    url: str
    pid: int
    port: int
    token: bool = False  # whether one is asked for


def door(port: int, host: str = LOOPBACK, token_file: Path | None = None) -> Door:
    """Return where to listen. Raises ``CannotListen`` for another address without a token, or a token that others could read."""
    token = _token(token_file) if token_file is not None else ""
    if not token and not is_loopback(host):
        raise CannotListen(
            f"{host} can be reached from other machines, and no token is asked for: give --token-file FILE (a secret of at least "
            f"{TOKEN_MIN} characters), or listen on {LOOPBACK}"
        )
    return Door(host, port, token)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise CannotListen(f"the token cannot be read from {path}: {error}; name a text file with one line") from None
    if mode & 0o077:
        raise CannotListen(f"{path} can be read by others; `chmod 600 {path}` keeps the token yours")
    if len(text) < TOKEN_MIN or not text.isascii() or not text.isprintable() or " " in text:
        raise CannotListen(
            f"{path} holds no token: one line of at least {TOKEN_MIN} printable characters, such as of `openssl rand -hex 32`"
        )
    return text


def running(home: Home) -> Listening | None:
    """Return where the projector of this directory listens, None when it does not or is gone."""
    try:
        found = msgspec.json.decode(home.http_file.read_bytes(), type=Listening)
    except (OSError, msgspec.DecodeError):
        return None
    try:
        os.kill(found.pid, 0)
    except PermissionError:
        return found  # it is somebody else's, and there
    except OSError:
        return None
    return found


@contextlib.contextmanager
def bound(home: Home, where: Door) -> Iterator[tuple[socket.socket, str]]:
    """Bind the socket and say in the home's file where; raises ``CannotListen``. The file goes when this ends."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((where.host, where.port))
            listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {where.host} port {where.port}: {error.strerror or error}; choose another, 0 is a free one"
            ) from None
        port = listener.getsockname()[1]
        shown = f"[{where.host}]" if family == socket.AF_INET6 else where.host
        url = f"http://{shown}:{port}"
        beside = home.http_file.with_name(f".{home.http_file.name}.{os.getpid()}")
        beside.write_bytes(msgspec.json.encode(Listening(url, os.getpid(), port, bool(where.token))))
        beside.replace(home.http_file)
        try:
            yield listener, url
        finally:
            found = running(home)
            if found is not None and found.pid == os.getpid():
                home.http_file.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve ``app`` on a bound socket until this ends; connections then get a moment to finish."""
    import uvicorn

    class Server(uvicorn.Server):
        """Signals are the projector's."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX, timeout_keep_alive=5, timeout_graceful_shutdown=CLOSE_S,
        ws="none", http="h11",
    )  # fmt: skip
    server = Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="live reads")
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait((serving,), timeout=CLOSE_S + 1)
        if not serving.done():
            await ending.let_go(serving)
