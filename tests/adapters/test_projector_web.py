"""Live reads over HTTP, against a real server and projector: answers, forms, freshness, and what is refused."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes.home import Home
from apportion.adapters.projector import answering, listening, web
from apportion.adapters.projector.listening import CannotListen, Door, Listening
from apportion.adapters.projector.process import Projector
from apportion.projections import queries, storage
from tests.adapters.test_projector import fill, projecting
from tests.projections.history import simulated

PATIENCE_S = 180.0  # for a machine that is busy
RunAsync = Callable[[Coroutine[Any, Any, Any]], Any]
LOGS = {"hours": 6, "nodes": 2, "rough": False}


class Got(NamedTuple):
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = self.json["error"]
        assert found["what"]
        assert found["do"]
        return found


class Client:
    """Asks one projector, from a thread of its own."""

    def __init__(self, found: Listening, projector: Projector) -> None:
        self.found = found
        self.projector = projector

    async def get(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Got:
        return await asyncio.to_thread(self.got, path, method, body, {k.replace("_", "-"): v for k, v in headers.items()})

    def got(self, path: str, method: str, body: bytes, headers: dict[str, str]) -> Got:
        connection = http.client.HTTPConnection("127.0.0.1", self.found.port, timeout=30)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return Got(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


class Played:
    """One server, one log, one projector, in a loop that runs in a thread as long as the tests of this file."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def do(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self.loop).result(PATIENCE_S)


@asynccontextmanager
async def offered(url: str, home: Home, **door: Any) -> AsyncIterator[Client]:
    async with await Bus.open(url, create=True) as bus:
        await fill(bus, simulated(41, **LOGS), after=0)
        async with await Bus.open(url) as reading, projecting(home, reading, http=Door(**door)) as projector:
            found = listening.running(home)
            assert found is not None
            yield Client(found, projector)


@pytest.fixture(scope="module")
def client(nats_module_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Played, Home]]:
    simulated(41, **LOGS)  # before anybody waits for it: its kernels may have to be compiled
    played = Played()
    home = Home.of(tmp_path_factory.mktemp("web")).ensure()
    offering = offered(nats_module_server.url, home)
    try:
        yield played.do(offering.__aenter__()), played, home
    finally:
        played.do(offering.__aexit__(None, None, None))
        played.loop.call_soon_threadsafe(played.loop.stop)
        assert listening.running(home) is None


@pytest.fixture(scope="module")
def nats_module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with served(tmp_path_factory.mktemp("nats")) as server:
        yield server


@contextmanager
def served(folder: Path) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(Home.of(folder).ensure())
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def ask(client: tuple[Client, Played, Home]) -> Callable[..., Got]:
    def asked(path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Got:
        return client[0].got(path, method, body, {k.replace("_", "-"): v for k, v in headers.items()})

    return asked


def test_answers_are_those_of_the_projection_in_every_form(ask: Callable[..., Got], client: tuple[Client, Played, Home]) -> None:
    told = ask("/q/usage?by=day,budget&budget=itp").json
    assert told["question"] == queries.find("usage").question
    assert told["as_of"]["seq"] == simulated(41, **LOGS).batches[-1].input_seq
    assert told["as_of"]["time"].startswith("2026-01-01T06:00:00")
    assert told["rows"]
    assert [list(row) for row in told["rows"]] == [told["columns"]] * len(told["rows"])

    csv = ask("/q/usage.csv?by=day,budget&budget=itp")
    assert csv.headers["content-type"].startswith("text/csv")
    lines = csv.body.decode().splitlines()
    assert lines[0].split(",") == told["columns"]
    assert len(lines) == len(told["rows"]) + 1

    for path, headers in (("/q/usage.parquet", {}), ("/q/usage", {"Accept": "application/vnd.apache.parquet"})):
        found = ask(f"{path}?by=day,budget&budget=itp", **headers)
        file = client[2].root / "answer.parquet"
        file.write_bytes(found.body)
        with duckdb.connect() as con:
            rows = con.execute(f"select funded_gpu_us from read_parquet('{file}')").fetchall()
        assert [row[0] for row in rows] == [row["funded_gpu_us"] for row in told["rows"]]

    arrow = pytest.importorskip("pyarrow.ipc", reason="pyarrow is an extra")
    table = arrow.open_stream(io.BytesIO(ask("/q/usage.arrow?by=day,budget&budget=itp").body)).read_all()
    assert table.column("funded_gpu_us").to_pylist() == [row["funded_gpu_us"] for row in told["rows"]]


def test_each_answer_says_how_fresh_it_is_and_unchanged_ones_are_not_sent_again(ask: Callable[..., Got]) -> None:
    for path in ("/q/status", "/q/holders.csv?pool=h100", "/q/audit?check=books", "/"):
        first = ask(path)
        assert first.status == 200
        assert int(first.headers["apportion-seq"]) > 0
        assert first.headers["apportion-time"] == "2026-01-01T06:00:00.000Z"
        assert first.headers["apportion-lag"] == first.headers["apportion-lag-ms"] == "0"
        if path != "/":
            again = ask(path, If_None_Match=first.headers["etag"])
            assert (again.status, again.body) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
    others = ("/q/status", "/q/status.csv", "/q/holders", "/q/holders?pool=h100", "/q/status?seq=500")
    assert len({ask(path).headers["etag"] for path in others}) == len(others)
    early = ask("/q/status?seq=500")
    assert early.json["as_of"]["seq"] <= 500
    assert ask("/q/status?seq=500", If_None_Match=early.headers["etag"]).status == 304


def test_questions_are_listed_with_what_they_take(ask: Callable[..., Got]) -> None:
    found = {row["query"]: row for row in ask("/q").json["queries"]}
    assert found.keys() == queries.catalog().keys()
    bill = {row["name"]: row for row in found["bill"]["parameters"]}
    assert bill["budget"]["required"]
    assert bill["to_ms"]["meaning"] == "not included"


@pytest.mark.parametrize(
    ("path", "status", "kind", "word"),
    [
        ("/q/usag", 404, "unknown", "usag"),
        ("/elsewhere", 404, "unknown", "/elsewhere"),
        ("/q/usage?buget=x", 400, "usage", "buget"),
        ("/q/usage?budget=x&budget=y", 400, "usage", "twice"),
        ("/q/usage?since_ms=soon", 400, "usage", "since_ms=soon"),
        ("/q/usage?since_ms=99999999999999999999999", 400, "usage", "since_ms"),
        ("/q/usage?by_day=perhaps", 400, "usage", "by_day"),
        ("/q/usage?by=colour", 400, "usage", "colour"),
        ("/q/bill", 400, "usage", "needs budget"),
        ("/q/usage.xlsx", 406, "form", ".xlsx"),
        ("/q/status?seq=999999999", 503, "stale", "999999999"),
        ("/q/status?seq=-1", 400, "usage", "-1"),
        ("/q/usage?budget='%20or%201=1%20--", 200, "", ""),
        ("/q/..%2Faudit%2Fbooks", 404, "unknown", ""),
    ],
)
def test_what_cannot_be_answered_is_said(ask: Callable[..., Got], path: str, status: int, kind: str, word: str) -> None:
    got = ask(path)
    assert got.status == status, got.body
    if kind:
        assert got.error["kind"] == kind
        assert word in got.error["what"]
    else:
        assert got.json["rows"] == []


def test_only_reads_are_offered_and_only_to_this_machine(ask: Callable[..., Got]) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask("/q/usage", method).status == 405
    assert ask("/sql").status == 405
    assert ask("/q/status", Accept="image/png").error["kind"] == "form"
    for host in ("evil.example", "evil.example:80", "192.0.2.7"):
        got = ask("/q/status", Host=host)
        assert (got.status, got.error["kind"]) == (403, "host")
    assert ask("/q/status", Host="localhost:1").status == 200


def test_sql_is_answered_in_the_sandbox(ask: Callable[..., Got], client: tuple[Client, Played, Home]) -> None:
    one, played, home = client
    assert ask("/sql", "POST", b"select 1").error["kind"] == "stale"

    async def publish() -> None:
        follower = one.projector._follower
        assert follower is not None
        await follower.quietly(lambda: storage.publish(follower.projection, home.published))

    played.do(publish())
    told = ask("/sql", "POST", b"select pool, sum(gpu_us)::bigint as gpu_us from fact.alloc_closed group by all").json
    assert told["rows"][0]["pool"] == "h100"
    assert told["as_of"]["seq"] > 0
    assert told["truncated"] is False
    posted = ask("/sql", "POST", b'{"sql": "select 7 as n"}', Content_Type="application/json", Accept="text/csv")
    assert posted.body.decode().split() == ["n", "7"]
    for text in (b"delete from fact.cycle", b"select 1; select 2", b"copy fact.cycle to 'out.csv'", b"\xff\xfe", b"", b"selct",
                 b"select * from read_csv('/etc/passwd')"):  # fmt: skip
        got = ask("/sql", "POST", text)
        assert (got.status, got.error["kind"]) == (400, "usage"), text
    assert ask("/sql", "POST", b"select '" + b"x" * 200_000 + b"'").status == 413


def test_a_crowd_is_told_to_come_back_and_a_slow_question_is_stopped(
    ask: Callable[..., Got], client: tuple[Client, Played, Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, played, _home = client
    held: list[Any] = []

    async def hold() -> None:
        for _ in range(answering.READERS):
            held.append(await one.projector._answering._cursors.get())

    async def free() -> None:
        while held:
            one.projector._answering._cursors.put_nowait(held.pop())

    async def crowd() -> list[Got]:
        asking = [asyncio.create_task(one.get("/q/totals")) for _ in range(6)]
        done: set[Any] = set()
        while len(done) < 4:
            done, _ = await asyncio.wait(asking, timeout=0.2)
        await free()
        return list(await asyncio.gather(*asking))

    monkeypatch.setattr(web, "WAITING_MAX", 2)
    played.do(hold())
    answers = played.do(crowd())
    assert sorted(got.status for got in answers) == [200] * 2 + [503] * 4
    assert all(got.headers["retry-after"] == "1" and got.error["kind"] == "busy" for got in answers if got.status == 503)

    monkeypatch.setattr(answering, "LIMIT_S", 0.0)
    assert (ask("/q/usage").status, ask("/q/usage").error["kind"]) == (504, "time")
    monkeypatch.undo()
    assert ask("/q/usage").status == 200


def test_too_large_an_answer_is_refused(ask: Callable[..., Got], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "ANSWER_BYTES_MAX", 1_000)
    got = ask("/q/decisions")
    assert (got.status, got.error["kind"]) == (413, "size")


def test_a_broken_request_does_not_disturb(ask: Callable[..., Got], client: tuple[Client, Played, Home]) -> None:
    for junk in (b"\x00\xff\r\n\r\n", b"GET /q HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"G" * 100_000,
                 b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nselect"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", client[0].found.port), timeout=5) as raw:
            raw.sendall(junk)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(5)
            try:
                while raw.recv(65_536):
                    pass
            except OSError:
                pass
    assert ask("/q/status").status == 200


def test_elsewhere_a_token_is_asked_for(tmp_path: Path, run_async: RunAsync) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret-of-this-cluster\n")
    secret.chmod(0o644)
    with pytest.raises(CannotListen, match="chmod 600"):
        listening.door(0, "0.0.0.0", secret)
    secret.chmod(0o600)
    with pytest.raises(CannotListen, match="no token is asked for"):
        listening.door(0, "0.0.0.0")
    short = tmp_path / "short"
    short.write_text("x")
    short.chmod(0o600)
    with pytest.raises(CannotListen, match="at least 16"):
        listening.door(0, "127.0.0.1", short)
    where = listening.door(0, "0.0.0.0", secret)

    async def play(url: str) -> None:
        home = Home.of(tmp_path / "home").ensure()
        async with offered(url, home, host=where.host, token=where.token) as one:
            for header in ("", "Bearer wrong", "Basic s3cret-of-this-cluster", "s3cret-of-this-cluster", "Bearer"):
                for path, method in (("/q/status", "GET"), ("/", "GET"), ("/q", "GET"), ("/sql", "POST")):
                    got = await one.get(path, method, **({"Authorization": header} if header else {}))
                    assert (got.status, got.error["kind"]) == (401, "token")
                    assert got.headers["www-authenticate"] == "Bearer"
            right = {"Authorization": "Bearer s3cret-of-this-cluster"}
            assert (await one.get("/q/status", Host="apportion.example", **right)).status == 200
            assert "s3cret" not in home.http_file.read_text()
            with pytest.raises(CannotListen, match="cannot listen"), listening.bound(home, Door("127.0.0.1", one.found.port)):
                pass

    with served(tmp_path / "nats") as server:
        run_async(play(server.url))
