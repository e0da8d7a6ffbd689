"""The embedded server: one per home, found again, stale files recognised, safe by default."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apportion.adapters.bus.server import EmbeddedServer, ServerError, ServerFile, greet
from apportion.adapters.processes.home import Home


def test_starts_on_loopback_and_writes_where_it_is(nats_server: EmbeddedServer) -> None:
    known = msgspec.json.decode(nats_server.home.server_file.read_bytes(), type=ServerFile)

    assert known == nats_server.file
    assert nats_server.url == f"nats://127.0.0.1:{nats_server.port}"
    greeting = greet(nats_server.port)
    assert greeting is not None
    assert greeting.server_id == known.server_id


def test_every_acknowledged_message_is_synced_unless_told_otherwise(tmp_path: Path) -> None:
    with EmbeddedServer(Home.of(tmp_path / "home")) as server:
        assert 'sync_interval: "always"' in server.conf_path.read_text()


def test_second_start_attaches_instead_of_doubling(start_nats: Callable[..., EmbeddedServer]) -> None:
    first = start_nats()
    second = start_nats()

    assert second.pid == first.pid
    assert first.owned
    assert not second.owned


def test_attached_server_can_be_stopped_by_pid(start_nats: Callable[..., EmbeddedServer]) -> None:
    first = start_nats()
    attached = EmbeddedServer.running(first.home)
    assert attached is not None
    port = first.port
    # The parent must reap its child before the pid disappears, as a shell or init would.
    reaper = threading.Thread(target=lambda: first._process is not None and first._process.wait(20))
    reaper.start()
    attached.stop()
    reaper.join()

    assert greet(port) is None
    assert EmbeddedServer.running(first.home) is None
    assert not first.home.server_file.exists()


def test_stale_file_after_a_crash_is_recognised_and_the_port_is_kept(start_nats: Callable[..., EmbeddedServer]) -> None:
    server = start_nats()
    port = server.port
    server.kill()
    assert server.home.server_file.exists()
    assert EmbeddedServer.running(server.home) is None

    server.start()

    assert server.port == port


def test_another_server_on_the_remembered_port_is_not_ours(start_nats: Callable[..., EmbeddedServer]) -> None:
    ours = start_nats("ours")
    port = ours.port
    ours.kill()
    start_nats("other", port=port)

    assert EmbeddedServer.running(ours.home) is None
    ours.start()
    assert ours.port != port


def test_relaxed_server_is_not_adopted_by_who_needs_durability(start_nats: Callable[..., EmbeddedServer]) -> None:
    server = start_nats()

    with pytest.raises(ServerError, match="relaxed syncing"):
        EmbeddedServer(server.home, sync="always").start()


def test_failure_to_start_shows_the_servers_own_words(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home").ensure()
    home.jetstream.write_text("a file where the store should be")

    with pytest.raises((ServerError, OSError)):
        EmbeddedServer(home).start()


def test_port_in_use_is_reported(start_nats: Callable[..., EmbeddedServer]) -> None:
    taken = start_nats("first").port

    with pytest.raises(ServerError, match=r"(?s)ended with code.*address already in use"):
        start_nats("second", port=taken)
