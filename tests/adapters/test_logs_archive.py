"""The archive: exports go on where they ended, damage of any kind is named, and a replay of files equals one of the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.decisions import PART_BYTES
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.logs import parts
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.core.errors import ApportionError, LogMismatch
from tests.archived import export


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ITEMS", 100)


def filled(count: int, log: MemoryEventLog | None = None) -> MemoryEventLog:
    log = log or MemoryEventLog()
    dice = random.Random(count)
    for number in range(count):
        log.append(f"ap.ev.a{number % 5}.x", dice.randbytes(dice.randrange(200)), stored_ms=10**12 + number)
    return log


async def events_in(directory: Path, at_once: int = 77) -> list[Any]:
    log, found = ArchiveEventLog(directory), []
    while more := await log.read(len(found), at_once):
        found += more
    return found


def test_an_archive_grows_by_whole_files_and_reads_as_the_log(tmp_path: Path, run_async: Any) -> None:
    async def scenario() -> None:
        events, decisions = filled(250), MemoryDecisionLog()
        for number in range(130):
            await decisions.commit(b"%d" % number, number + 1, number)
        assert await export(events, decisions, tmp_path) == (250, 130)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert await export(events, decisions, tmp_path) == (250, 130)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

        filled(40, events)
        await decisions.commit(b"last", 300, 130)
        assert await export(events, decisions, tmp_path) == (290, 131)
        for at_once in (1, 7, 77):
            assert await events_in(tmp_path, at_once) == await events.read(0, 1_000)
        assert [record for some in ArchiveEventLog(tmp_path).records(17) for record in some] == await events.read(17, 1_000)
        assert await ArchiveDecisionLog(tmp_path).read(0, 1_000) == await decisions.read(0, 1_000)
        after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert all(after[name] == content for name, content in before.items() if name != "archive.json")

    run_async(scenario())


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def _swap(path: Path) -> None:
    other = sorted(path.parent.glob("events-*.seg"))[2]
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda path: path.unlink(), "is missing"),
        (_flip, "hash of its content"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is not the file that"),
        (lambda path: path.write_bytes(b"nonsense"), "no segment"),
        (lambda path: path.write_bytes(b""), "no segment"),
        (_swap, "expected seq 101"),
        (lambda path: path.write_bytes(path.read_bytes()[:40]), "header of"),
    ],
    ids=["missing", "flipped bit", "truncated", "nonsense", "empty", "swapped", "cut header"],
)
def test_damage_is_named_and_never_a_silent_hole(
    tmp_path: Path, run_async: Any, damage: Callable[[Path], object], complaint: str
) -> None:
    async def scenario() -> None:
        await export(filled(350), MemoryDecisionLog(), tmp_path)
        damage(sorted(tmp_path.glob("events-*.seg"))[1])
        with pytest.raises(LogMismatch, match=complaint):
            await events_in(tmp_path)

    run_async(scenario())


def test_any_flipped_bit_is_found(tmp_path: Path, run_async: Any) -> None:
    async def scenario() -> None:
        events = filled(150)
        await export(events, MemoryDecisionLog(), tmp_path)
        whole = await events_in(tmp_path)
        dice = random.Random(7)
        for _round in range(60):
            path = dice.choice(sorted(tmp_path.glob("*.seg")))
            content = path.read_bytes()
            damaged = bytearray(content)
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
            path.write_bytes(bytes(damaged))
            with pytest.raises(ApportionError):
                await events_in(tmp_path)
            path.write_bytes(content)
        assert await events_in(tmp_path) == whole == await events.read(0, 1_000)

    run_async(scenario())


def test_segment_replaced_by_one_of_another_export_breaks_the_chain(tmp_path: Path, run_async: Any) -> None:
    async def scenario() -> None:
        await export(filled(350), MemoryDecisionLog(), tmp_path / "one")
        other = MemoryEventLog()
        for number in range(350):
            other.append("ap.ev.z.x", b"%d" % number)
        await export(other, MemoryDecisionLog(), tmp_path / "two")
        one, two = (sorted((tmp_path / place).glob("events-*.seg"))[1] for place in ("one", "two"))
        one.write_bytes(two.read_bytes())
        with pytest.raises(LogMismatch, match="a file is missing or was replaced"):
            ArchiveEventLog(tmp_path / "one")
        first = [sorted((tmp_path / place).glob("events-*.seg"))[0] for place in ("one", "two")]
        first[0].write_bytes(first[1].read_bytes())
        with pytest.raises(LogMismatch, match="is not the file that"):
            ArchiveEventLog(tmp_path / "one")

    run_async(scenario())


def test_archive_of_a_server_reads_as_the_server(tmp_path: Path, run_async: Any, nats_server: EmbeddedServer) -> None:
    async def scenario() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await bus.publisher.send_many((f"ap.ev.a{number % 9}.x", b"%d" % number, f"{number}") for number in range(730))
            await bus.publisher.flush()
            seq = 0
            for number, size in enumerate([5, PART_BYTES + 5, 70, 3 * PART_BYTES, 1]):
                seq = await bus.decisions.commit(b"x" * size, number + 1, seq)
            assert await export(bus.events, bus.decisions, tmp_path) == (730, seq)
            assert await events_in(tmp_path) == await bus.events.read(0, 1_000)
            assert await ArchiveDecisionLog(tmp_path).read(0, 100) == await bus.decisions.read(0, 100)

    run_async(scenario())
