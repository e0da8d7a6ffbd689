"""Writing an archive of days: whole, exactly once, interrupted anywhere, and only what the core can trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from apportion.adapters.archiving import parquet, writing
from apportion.adapters.archiving.checking import findings
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.cli.main import run
from apportion.adapters.logs import manifest, parts
from apportion.adapters.logs.archive import ArchiveDecisionLog, ArchiveEventLog
from apportion.adapters.logs.claims import times
from apportion.adapters.logs.manifest import load
from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.past.replaying import state_at
from apportion.adapters.past.snapshots import DiskSnapshots
from apportion.adapters.past.verifying import verify
from apportion.adapters.simulation.driver import Logs
from apportion.core.decisions import decode_batch, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import StoredBatch
from apportion.core.errors import Divergence, LogMismatch
from apportion.core.units import MS_PER_DAY
from tests.archived import played

Both = tuple[MemoryEventLog, MemoryDecisionLog]


@pytest.fixture(scope="module")
def history() -> Logs:
    """Parts of three days, with copies, disorder, wrong clocks and rubbish in the log."""
    return played(5, rough=True)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_ITEMS", 400)
    monkeypatch.setattr(writing, "READ_EVENTS", 150)


def logs(history: Logs, records: int | None = None, batches: int | None = None) -> Both:
    """Return logs that hold the first records of a history, and the batches that answer them."""
    events, decisions = MemoryEventLog(), MemoryDecisionLog()
    events._records = history.records[:records]
    last_seq = len(events._records)
    decisions._batches = [batch for batch in history.batches if batch.input_seq <= last_seq][:batches]
    return events, decisions


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def day_ends(history: Logs) -> list[int]:
    """Return the last sequence of each day that is over, as the core counts time record by record: the naive way."""
    core, ends, batches = Core.new(), [], iter(history.batches)
    day = 0
    for record in history.records:
        if core.fold(record):
            core.trust(next(batches).body, check=False)
        if day and core.time_ms // MS_PER_DAY > day:
            ends.append(record.seq - 1)
        day = core.time_ms // MS_PER_DAY
    return ends


def test_each_day_that_is_over_is_sealed_and_the_rest_stays_in_the_log(history: Logs, tmp_path: Path, run_async: Any) -> None:
    events, decisions = logs(history)

    written = run_async(write(events, decisions, tmp_path))

    assert [entry.last_seq for entry in written.days] == day_ends(history)
    assert [entry.day for entry in written.days] == ["2026-01-01", "2026-01-02"]
    assert written.unfinished_day == "2026-01-03"
    assert len(written.days[1].events) > 2
    end = written.archived_seq
    assert run_async(ArchiveEventLog(tmp_path).read(0, end + 1)) == history.records[:end]
    batches = run_async(ArchiveDecisionLog(tmp_path).read(0, len(history.batches)))
    assert batches == [batch for batch in history.batches if batch.input_seq <= end]
    assert findings(tmp_path) == []
    result = run_async(verify(ArchiveEventLog(tmp_path), ArchiveDecisionLog(tmp_path)))
    assert result.ok
    assert (result.to_seq, result.digest) == (end, written.days[-1].digest)


def test_a_snapshot_of_each_days_end_is_the_state_there(history: Logs, tmp_path: Path, run_async: Any) -> None:
    events, decisions = logs(history)
    written = run_async(write(events, decisions, tmp_path))

    for entry in written.days:
        found = DiskSnapshots(tmp_path / "snapshots").load_with_meta(entry.last_seq)
        assert found is not None
        assert (found[0].seq, found[0].decision_seq) == (entry.last_seq, entry.last_decision)
        assert found[1] == run_async(state_at(events, decisions, entry.last_seq)).snapshot()
        assert Core.from_snapshot(found[1]).digest() == entry.digest
        rest = run_async(verify(events, decisions, found[1]))  # a verify may begin at any day
        assert rest.ok


def test_writing_again_and_again_as_the_log_grows_gives_the_same_files(history: Logs, tmp_path: Path, run_async: Any) -> None:
    run_async(write(*logs(history), tmp_path / "once"))
    whole = content(tmp_path / "once")
    added = 0
    for records in (10, 100, day_ends(history)[0], day_ends(history)[0] + 1, 1_200, None):
        added += len(run_async(write(*logs(history, records), tmp_path / "often")).days)

    assert content(tmp_path / "often") == whole
    assert added == 2
    assert run_async(write(*logs(history), tmp_path / "often")).days == ()


def test_a_write_that_dies_at_any_file_is_taken_up_where_it_was(
    history: Logs, tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_async(write(*logs(history), tmp_path / "whole"))
    real, left = parts.write_durably, 0

    def dying(path: Path, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            path.with_name(f".{path.name}.tmp").write_bytes(data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        real(path, data)

    for module in (parts, manifest, writing.DiskSnapshots.save.__globals__):
        target = module if isinstance(module, dict) else vars(module)
        monkeypatch.setitem(target, "write_durably", dying)
    torn, deaths = tmp_path / "torn", 0
    while True:
        left = deaths % 9
        try:
            run_async(write(*logs(history), torn))
            break
        except OSError:
            deaths += 1
            read = run_async(ArchiveEventLog(torn).read(0, 10**6))  # what it has is whole at any time
            assert read == history.records[: len(read)]
        assert deaths < 40
    assert deaths > 5
    temporary = [name for name in content(torn) if name.endswith(".tmp") and not name.endswith(".seg.tmp")]
    assert {name: data for name, data in content(torn).items() if name not in temporary} == content(tmp_path / "whole")


def test_a_day_that_is_not_over_is_added_open_and_replaced(history: Logs, tmp_path: Path, run_async: Any) -> None:
    run_async(write(*logs(history), tmp_path / "sealed"))
    for records in (90, day_ends(history)[0] + 900, None):
        written = run_async(write(*logs(history, records), tmp_path / "open", with_open_day=True))
        assert [entry.sealed for entry in load(tmp_path / "open").days][-1] is False
        assert written.archived_seq == written.log_seq == (records or len(history.records))
        result = run_async(verify(ArchiveEventLog(tmp_path / "open"), ArchiveDecisionLog(tmp_path / "open")))
        assert (result.ok, result.to_seq) == (True, written.log_seq)
        kept = content(tmp_path / "open")
        run_async(write(*logs(history, records), tmp_path / "open"))  # without: what is there stays
        assert content(tmp_path / "open") == kept

    assert load(tmp_path / "open").sealed == load(tmp_path / "sealed").days
    sealed = content(tmp_path / "sealed")
    assert {name: data for name, data in content(tmp_path / "open").items() if name in sealed and name != "archive.json"} == {
        name: data for name, data in sealed.items() if name != "archive.json"
    }
    assert findings(tmp_path / "open") == []


def test_a_tick_without_its_batch_ends_the_write(history: Logs, tmp_path: Path, run_async: Any) -> None:
    written = run_async(write(*logs(history, None, 20), tmp_path, with_open_day=True))

    assert written.waiting_seq == history.batches[20].input_seq == written.archived_seq
    assert len(run_async(ArchiveDecisionLog(tmp_path).read(0, 100))) == 20
    assert run_async(write(*logs(history), tmp_path)).archived_seq == day_ends(history)[-1]


def test_another_log_and_a_shorter_one_are_refused(history: Logs, tmp_path: Path, run_async: Any) -> None:
    run_async(write(*logs(history), tmp_path))
    before = content(tmp_path)

    with pytest.raises(LogMismatch, match="has archived"):
        run_async(write(*logs(history, 100), tmp_path))
    with pytest.raises(LogMismatch, match="this is another log"):
        run_async(write(*logs(played(6, rough=True)), tmp_path))
    assert content(tmp_path) == before


def test_a_decision_that_does_not_follow_is_not_archived(history: Logs, tmp_path: Path, run_async: Any) -> None:
    events, decisions = logs(history)
    at = next(number for number, batch in enumerate(history.batches) if batch.input_seq > day_ends(history)[0] + 50)
    batch = decode_batch(history.batches[at].body)
    forged = encode_batch(type(batch)(**{**{name: getattr(batch, name) for name in batch.__struct_fields__}, "digest": "0" * 64}))
    decisions._batches[at] = StoredBatch(at + 1, history.batches[at].input_seq, forged)

    with pytest.raises(Divergence):
        run_async(write(events, decisions, tmp_path))

    assert [entry.last_seq for entry in load(tmp_path).days] == day_ends(history)[:1]
    assert findings(tmp_path) == []


def test_one_writer_at_a_time(history: Logs, tmp_path: Path, run_async: Any) -> None:
    with manifest.locked(tmp_path), pytest.raises(LogMismatch, match="another process is writing"):
        run_async(write(*logs(history), tmp_path))


def test_check_names_every_file_that_is_not_as_written(history: Logs, tmp_path: Path, run_async: Any) -> None:
    run_async(write(*logs(history), tmp_path))
    parquet.complete(tmp_path)
    assert findings(tmp_path) == []
    for entry in load(tmp_path).days:
        for file in entry.files:
            path, whole = tmp_path / file.name, (tmp_path / file.name).read_bytes()
            middle = len(whole) // 2
            path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 8]) + whole[middle + 1 :])
            assert [finding.file for finding in findings(tmp_path)] == [file.name]
            path.unlink()
            assert [finding.file for finding in findings(tmp_path)] == [file.name]
            path.write_bytes(whole)
    assert findings(tmp_path) == []


@pytest.mark.parametrize("rough", [True, False])
def test_parquet_holds_the_rows_of_the_log(tmp_path: Path, run_async: Any, rough: bool) -> None:
    history = played(5, rough=rough)
    run_async(write(*logs(history), tmp_path))

    made = parquet.complete(tmp_path)

    assert parquet.complete(tmp_path) == []
    with duckdb.connect() as con:
        rows = con.execute(
            "select seq, stored_ms, subject, coalesce(raw, encode(payload)), time_ms "
            f"from '{tmp_path}/parquet/events-*.parquet' order by seq"
        ).fetchall()
        assert [row[:4] for row in rows] == [tuple(record) for record in history.records[: len(rows)]]
        assert len(rows) == load(tmp_path).days[-1].last_seq
        core, batches = Core.new(), iter(history.batches)
        for (*_row, time_ms), record in zip(rows, history.records, strict=False):
            if core.fold(record):
                core.trust(next(batches).body, check=False)
            assert time_ms == core.time_ms
        rows = con.execute(
            f"select seq, input_seq, encode(payload) from '{tmp_path}/parquet/decisions-*.parquet' order by seq"
        ).fetchall()
        assert rows == [tuple(batch) for batch in history.batches[: len(rows)]]
        told = con.execute(
            f"select decode(value) from parquet_kv_metadata('{tmp_path / made[0].name}') where decode(key) = 'apportion_chain'"
        ).fetchall()
        assert told == [(load(tmp_path).days[0].events[-1].hash,)]
    assert [next(times(history.records[:1], None, stated=True))] == [core_start(history)]


def core_start(history: Logs) -> int:
    core = Core.new()
    core.fold(history.records[0])
    return core.time_ms


def test_the_archive_of_a_server_answers_the_verbs_without_it(
    tmp_path: Path, run_async: Any, nats_server: EmbeddedServer, capfd: pytest.CaptureFixture[str]
) -> None:
    history = played(7, rough=False, hours=4)

    async def fill() -> None:
        async with await Bus.open(nats_server.url, create=True) as bus:
            await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
            await bus.publisher.flush()
            for batch in history.batches:
                await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)

    run_async(fill())
    home, archive = str(tmp_path / "nats"), str(tmp_path / "nats" / "archive")

    def told(*arguments: str, code: int = 0) -> Any:
        assert run([*arguments, "--json"]) == code, capfd.readouterr().err
        return json.loads(capfd.readouterr().out)

    written = told("archive", "write", "--dir", home, "--parquet")
    assert [row["day"] for row in written["days"]] == ["2026-01-01"]
    assert told("archive", "write", "--dir", home)["days"] == []
    nats_server.stop()

    assert [row["state"] for row in told("archive", "list", "--dir", home)["days"]] == ["sealed"]
    assert told("archive", "check", archive)["ok"] is True
    end = written["archived_seq"]
    verified = told("verify", "--dir", archive)
    assert (verified["ok"], verified["to_seq"], verified["digest"]) == (True, end, written["days"][0]["digest"])
    assert told("replay", "--to", str(end), "--dir", archive)["digest"] == verified["digest"]
    assert told("events", "show", "1", "--dir", archive)["type"] == "log.opened"

    path = tmp_path / "nats" / "archive" / load(Path(archive)).days[0].events[0].name
    path.write_bytes(path.read_bytes()[:-40])
    assert told("archive", "check", "--dir", archive, code=1)["findings"][0]["file"] == path.name
    assert run(["verify", "--dir", archive]) == 1
    assert path.name in capfd.readouterr().err
    assert run(["snapshot", "--dir", archive]) == 2
    assert run(["queue", "--dir", archive]) == 3
    assert "is an archive" in capfd.readouterr().err
