"""The bulk parser and the compiled scan against their naive equivalents: same bytes in any pieces, same messages out."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from apportion.adapters.bus import frames, scan
from apportion.adapters.bus.messages import parse_ack_subject
from apportion.adapters.bus.reader import _Records
from apportion.adapters.bus.stream import StreamTail

Seen = list[tuple[Any, ...]]


class Ear(Client):
    """A client that only notes what the parser tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: Seen = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.heard.append(("MSG", int(sid), bytes(subject), bytes(reply), bytes(data), bytes(headers or b"")))

    async def _process_ping(self) -> None:
        self.heard.append(("PING",))

    async def _process_pong(self) -> None:
        self.heard.append(("PONG",))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        self.heard.append(("INFO", info["x"]))

    async def _process_err(self, err_msg: str) -> None:
        self.heard.append(("ERR", err_msg))


def message(subject: bytes, sid: int, reply: bytes, body: bytes, header: bytes = b"") -> bytes:
    middle = b" %b " % reply if reply else b" "
    if header:
        return b"HMSG %b %d%b%d %d\r\n%b%b\r\n" % (subject, sid, middle, len(header), len(header) + len(body), header, body)
    return b"MSG %b %d%b%d\r\n%b\r\n" % (subject, sid, middle, len(body), body)


def noise(dice: random.Random, count: int) -> bytes:
    """A stream of every kind of protocol line, bodies full of what looks like protocol."""
    parts = []
    for _ in range(count):
        body = dice.choice([b"", b"\r\n", b"MSG a 1 5\r\nhello\r\n", b"PING\r\n" * 3, dice.randbytes(dice.randrange(2_000))])
        header = dice.choice([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"])
        parts.append(
            dice.choice([
                message(b"some.subject", dice.randrange(1, 4), dice.choice([b"", b"a.reply"]), body, header),
                message(b"s", 2, b"r", body, header),
                b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b'INFO {"x":5}\r\n', b"-ERR 'Permissions Violation'\r\n",
            ])
        )  # fmt: skip
    return b"".join(parts)


def cut(dice: random.Random, data: bytes, largest: int) -> list[bytes]:
    pieces = []
    while data:
        size = dice.randrange(1, largest)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@pytest.mark.parametrize("largest", [3, 40, 700, 32_768])
def test_bulk_parser_says_what_the_librarys_own_says(run_async: Any, largest: int) -> None:
    async def scenario() -> None:
        for seed in range(12):
            dice = random.Random(seed)
            data = noise(dice, 60)
            ours, theirs = Ear(), Ear()
            bulk, plain = frames.BulkParser(ours), Parser(theirs)
            for piece in cut(dice, data, largest):
                await bulk.parse(piece)
                await plain.parse(piece)

            assert ours.heard == theirs.heard
            assert len(ours.heard) > 30

    run_async(scenario())


def test_tapped_messages_take_the_short_way_and_the_others_do_not(run_async: Any) -> None:
    async def scenario() -> None:
        dice = random.Random(5)
        data = noise(dice, 300)
        tapped, other = Ear(), Ear()
        parser = frames.BulkParser(tapped)
        taken: Seen = []
        parser.taps[b"2"] = lambda subject, reply, body, header: taken.append((2, subject, reply, body, header))
        for piece in cut(dice, data, 500):
            await parser.parse(piece)
        await Parser(other).parse(data)

        everything = [item for item in other.heard if item[0] == "MSG"]
        assert taken == [item[1:] for item in everything if item[1] == 2]
        assert [item for item in tapped.heard if item[0] == "MSG"] == [item for item in everything if item[1] != 2]

    run_async(scenario())


def test_a_failing_tap_loses_its_message_and_not_the_connection(run_async: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ear = Ear()
        parser = frames.BulkParser(ear)
        parser.taps[b"1"] = lambda *_parts: 1 // 0
        await parser.parse(message(b"a", 1, b"", b"boom") + message(b"b", 2, b"", b"fine"))
        assert [item[4] for item in ear.heard] == [b"fine"]
        assert "a tap failed" in caplog.text

    run_async(scenario())


@pytest.mark.parametrize("line", [b"HELLO", b"MSG", b"MSG a 1 x", b"HMSG a 1 r x 5", b"MSG a 1 -5", b"GET / HTTP/1.1", b""])
def test_garbage_is_a_protocol_error(run_async: Any, line: bytes) -> None:
    """Any other exception would end the client's read loop without a word."""

    async def scenario() -> None:
        with pytest.raises(ProtocolError):
            await frames.BulkParser(Ear()).parse(line + b"\r\nhello\r\n")

    run_async(scenario())


def test_reset_forgets_the_half_message(run_async: Any) -> None:
    async def scenario() -> None:
        ear = Ear()
        parser = frames.BulkParser(ear)
        await parser.parse(b"MSG a 1 100\r\nhalf")
        parser.reset()
        await parser.parse(b"PING\r\n")
        assert ear.heard == [("PING",)]

    run_async(scenario())


def test_a_client_of_another_make_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    client._ps = object()  # type: ignore[assignment]

    assert frames.install(client) is None
    assert "slower" in caplog.text


def test_header_blocks_survive_the_librarys_dictionary() -> None:
    block = frames._raw_header({"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": "12"})

    assert frames.status_of(block) == 408
    assert frames.fields_of(block) == {"": "Request Timeout", "Nats-Pending-Messages": "12"}
    assert frames.status_of(b"NATS/1.0\r\nA: b\r\n\r\n") == 0
    assert frames._raw_header(None) == b""


def test_both_forms_of_acknowledgement_subjects() -> None:
    assert parse_ack_subject(b"$JS.ACK.EVENTS.tail.1.17.5.1700000000123456789.9") == (17, 5, 1700000000123456789)
    assert parse_ack_subject(b"$JS.ACK.hub.ACCHASH.EVENTS.tail.1.17.5.1700000000123456789.9") == (17, 5, 1700000000123456789)
    assert parse_ack_subject(b"$JS.ACK._.ACCHASH.EVENTS.tail.1.17.5.1700000000123456789.9.token")[2] == 1700000000123456789
    for bad in (b"$JS.ACK.EVENTS.tail.1.17.5.1700", b"reply", b""):
        with pytest.raises(ValueError, match="not a JetStream"):
            parse_ack_subject(bad)


class Unconnected:
    """Just enough of a connection for a tail that is fed by hand."""

    def listen_refused(self, _refused: Any) -> Callable[[], None]:
        return lambda: None

    def listen(self, _lost: Any, _back: Any) -> Callable[[], None]:
        return lambda: None


def fed_tail(after_seq: int, *, compiled: bool, parser: frames.BulkParser) -> StreamTail[Any]:
    records = _Records()
    connection: Any = Unconnected()
    tail = StreamTail(connection, "EVENTS", after_seq, records, scanner=records.scanner if compiled else None)
    tail._broken = ""
    tail._tap = frames.Tap(3, lambda: None)
    parser.taps[b"3"] = tail._on_message
    if tail._scanner is not None:
        parser.scanners[b"3"] = tail._scanner
    return tail


def delivery(seq: int, consumer_seq: int, body: bytes, *, long: bool = False, header: bytes = b"") -> bytes:
    stored_ns = 1_700_000_000_000_000_000 + seq * 1_234_567
    ack = (b"$JS.ACK.hub.HASH.EVENTS.t.1.%d.%d.%d.0" if long else b"$JS.ACK.EVENTS.t.1.%d.%d.%d.0") % (seq, consumer_seq, stored_ns)
    return message(b"ap.ev.a%d.node.heartbeat" % (seq % 3), 3, ack, body, header)


def run_of_deliveries(dice: random.Random, count: int, first: int = 1) -> list[bytes]:
    return [
        delivery(
            seq, seq - first + 1, dice.choice([b"", b"\r\nMSG x 3 1\r\n", dice.randbytes(dice.randrange(300))]),
            long=dice.random() < 0.1, header=dice.choice([b"", b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"]),
        )
        for seq in range(first, first + count)
    ]  # fmt: skip


@pytest.mark.parametrize("trouble", ["none", "delivery lost", "record gone", "status", "other traffic", "broken ack", "repeated"])
@pytest.mark.parametrize("largest", [50, 4_000, 40_000])
def test_compiled_scan_reads_what_the_naive_way_reads(run_async: Any, trouble: str, largest: int) -> None:
    async def scenario() -> None:
        for seed in range(6):
            dice = random.Random(seed)
            deliveries = run_of_deliveries(dice, 150, first=11)
            if trouble == "delivery lost":
                del deliveries[70]
            elif trouble == "record gone":
                deliveries[70:] = [delivery(82 + number, 71 + number, b"later") for number in range(50)]
            elif trouble == "status":
                deliveries.insert(70, message(b"inbox", 3, b"", b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n"))
            elif trouble == "other traffic":
                deliveries[70:70] = [b"PING\r\n", message(b"x", 4, b"", b"hi"), message(b"x", 33, b"$JS.ACK.a", b"hi")]
            elif trouble == "broken ack":
                deliveries.insert(70, message(b"ap.ev.a.x", 3, b"$JS.ACK.EVENTS.t.1.x.71.17.0", b""))
            elif trouble == "repeated":
                deliveries.insert(70, deliveries[69])
            data = b"".join(deliveries)
            results = []
            for compiled in (False, True):
                parser = frames.BulkParser(Ear())
                tail = fed_tail(10, compiled=compiled, parser=parser)
                for piece in cut(random.Random(seed), data, largest):
                    await parser.parse(piece)
                results.append((
                    tail._items, tail._next_seq, tail._consumer_seq, tail._broken, str(tail._failure), tail._credit, tail._last,
                ))  # fmt: skip

            assert results[0] == results[1]
            whole = 150 if trouble in ("none", "status", "other traffic", "broken ack") else 70
            assert len(results[1][0]) == whole

    run_async(scenario())


def test_scan_takes_whole_runs_at_once() -> None:
    data = b"".join(run_of_deliveries(random.Random(1), 500))
    out = scan.table()

    count, after = scan.scan_buffer(data, 0, 3, 1, 0, out)

    assert (count, after) == (500, len(data))
    assert scan.scan_buffer(data, 0, 4, 1, 0, out) == (0, 0)
    assert scan.scan_buffer(data, 0, 3, 2, 0, out) == (0, 0)
    assert scan.scan_buffer(data[:-1], 0, 3, 1, 0, out)[0] == 499
    for length in range(200):  # an unfinished first frame is left alone wherever it is cut
        assert scan.scan_buffer(data[:length], 0, 3, 1, 0, out)[0] <= 2
