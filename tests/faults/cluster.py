"""Three nats-servers on the loopback interface that are one cluster, with JetStream: started, killed and stopped by process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from apportion.adapters.bus.server import HOST, find_binary, greet

NAMES = ("one", "two", "three")


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Its servers by name; each keeps its ports and its store when it is started again."""

    def __init__(self, directory: Path) -> None:
        ports = _free_ports(2 * len(NAMES))
        self._directory = directory
        self._client_ports = dict(zip(NAMES, ports[: len(NAMES)], strict=True))
        self._route_ports = dict(zip(NAMES, ports[len(NAMES) :], strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, name: str) -> str:
        """Where clients of one server connect to."""
        return f"nats://{HOST}:{self._client_ports[name]}"

    def start(self, name: str, timeout_s: float = 20.0) -> None:
        """Start one server and wait until it greets; it may not be part of the cluster yet."""
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in self._route_ports.values())
        conf = self._directory / f"{name}.conf"
        conf.write_text(f"""
listen: "{HOST}:{self._client_ports[name]}"
server_name: "{name}"
log_file: "{self._directory / name}.log"
jetstream {{ store_dir: "{self._directory / name}", max_mem: 67108864, max_file: 1073741824 }}
cluster {{ name: "test", listen: "{HOST}:{self._route_ports[name]}", routes: [{routes}] }}
""")
        self._processes[name] = subprocess.Popen(
            [str(find_binary()), "-c", str(conf)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + timeout_s
        while greet(self._client_ports[name]) is None:
            assert time.monotonic() < deadline, (self._directory / f"{name}.log").read_text()[-2_000:]
            time.sleep(0.02)

    def kill(self, name: str) -> None:
        """End one server as a crash would."""
        self._end(name, signal.SIGKILL)

    def stop(self) -> None:
        """End all that run."""
        for name in list(self._processes):
            self._end(name, signal.SIGTERM)

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self._processes.pop(name)
        os.kill(process.pid, how)
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10.0)


@contextlib.contextmanager
def three_servers(directory: Path) -> Iterator[Cluster]:
    """Start all three; stop them in the end."""
    cluster = Cluster(directory)
    try:
        for name in NAMES:
            cluster.start(name)
        yield cluster
    finally:
        cluster.stop()
