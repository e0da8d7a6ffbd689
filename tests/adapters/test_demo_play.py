"""The demo end to end: real server, real followers, real DuckDB; small clusters and a few simulated hours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.demo.play import DemoOptions, DemoRefused, run_demo
from apportion.adapters.demo.progress import Board
from apportion.adapters.demo.report import lines
from apportion.adapters.demo.setting import MARK, story
from apportion.adapters.demo.trace import TRACE_EPOCH_MS
from apportion.adapters.demo.troupe import Follower, FollowerFailed
from apportion.adapters.processes.home import Home
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.driver import Simulation, simulate
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.decisions import decode_batch, encode_batch
from apportion.core.envelope import Record, StoredBatch

HOUR_MS = 3_600_000
SMALL = Layout(nodes=4)


def options(directory: Path, **changes: Any) -> DemoOptions:
    return DemoOptions(
        **{"home": Home.of(directory), "layout": SMALL, "length_ms": 2 * HOUR_MS, "quiet": True, **changes}
    )


def stored(directory: Path) -> tuple[list[Record], list[StoredBatch]]:
    """Read both logs of a directory whose server is stopped."""

    async def read() -> tuple[list[Record], list[StoredBatch]]:
        async with await Bus.at_home(Home.of(directory)) as bus:
            records = await bus.events.read(0, 1_000_000)
            return records, await bus.decisions.read(0, 1_000_000)

    with EmbeddedServer(Home.of(directory), sync="relaxed"):
        return asyncio.run(read())


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("demo") / "one"
    return directory, run_demo(options(directory))


def test_the_report_keeps_the_contract_for_scripts(played: tuple[Path, dict[str, Any]]) -> None:
    directory, document = played
    assert json.loads(json.dumps(document)) == document
    assert document["ok"] is True
    assert set(document["jobs"]) >= {"submitted", "started", "finished"}
    assert document["jobs"]["submitted"] >= document["jobs"]["started"] > 0
    used = sum(line["gpu_us"] for line in document["shares"])
    rest = document["unfunded_gpu_us"] + document["idle_gpu_us"] + document["down_gpu_us"]
    assert document["supply_gpu_us"] == used + rest == SMALL.gpus * 1_000 * 2 * HOUR_MS
    assert sum(line["unfunded_gpu_us"] for line in document["shares"]) == document["unfunded_gpu_us"]
    assert sum(line["entitled_ppm"] for line in document["shares"]) == 1_000_000
    assert all({"budget", "entitled_ppm", "got_ppm"} <= line.keys() for line in document["shares"])
    assert document["conservation_error"] == 0
    assert 0 < document["occupancy"] <= 1
    assert document["verify"]["ok"] is True
    assert document["verify"]["cycles"] == document["cycles"] == 120
    assert document["verify"]["digest"]
    assert document["audit"]["checks"] >= 20
    assert document["audit"]["failed"] == 0
    assert document["events"] > 4 * 120
    assert document["wall_s"] > 0
    assert document["rss_mb"] > 0
    assert document["complaints"] == []
    assert json.loads((directory / MARK).read_text()) == document


def test_the_text_says_the_same(played: tuple[Path, dict[str, Any]]) -> None:
    _directory, document = played
    text = "\n".join(lines(document))
    assert "exact to the microsecond" in text
    assert "verify   ok: 120 of 120 cycles" in text
    assert f"all {document['audit']['checks']} checks hold" in text
    assert text.count("itp/cluster") == 10
    assert "apportion share --dir" in text
    wrong = document | {"conservation_error": 7, "complaints": ["GPU 1 of node001 is used twice"]}
    wrong |= {"verify": document["verify"] | {"ok": False}, "audit": {"checks": 3, "failed": 1, "failed_names": ["x"]}}
    text = "\n".join(lines(wrong))
    for said in ("WRONG by 7 GPU-us", "DIFFERENT", "1 of 3 checks FAIL: x", "GPU 1 of node001 is used twice"):
        assert said in text


def test_hours_in_the_text_add_up(played: tuple[Path, dict[str, Any]]) -> None:
    _directory, document = played
    row = next(line for line in lines(document) if line.startswith("all GPU time"))
    total = re.search(r"([\d,.]+) GPU-h =", row)
    parts = re.findall(r"(?:funded|unfunded|idle|down) ([\d,.]+) \(", row)
    assert total is not None
    assert len(parts) == 4
    assert round(sum(float(part.replace(",", "")) for part in parts), 1) == float(total[1]) == 64.0


def test_equal_seeds_give_equal_bytes_through_the_server(played: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    directory, document = played
    again = run_demo(options(tmp_path / "again"))
    records, batches = stored(directory)
    other_records, other_batches = stored(tmp_path / "again")
    assert [(r.subject, r.body) for r in records] == [(r.subject, r.body) for r in other_records]
    assert [batch.body for batch in batches] == [batch.body for batch in other_batches]
    assert again["verify"]["digest"] == document["verify"]["digest"]
    assert len(records) == document["events"]


def test_the_server_adds_nothing_to_what_is_decided(played: tuple[Path, dict[str, Any]]) -> None:
    """The same world without a server, driven in memory, comes to the same state."""
    directory, document = played
    jobs, world_options = story(options(directory))
    simulation = Simulation(World(jobs, world_options), every_interval=True)
    logs = simulation.run(world_options.start_ms + world_options.length_ms)
    records, batches = stored(directory)
    ticks = [batch.body for batch in batches]
    assert [batch.body for batch in logs.batches] == ticks
    assert [r.body for r in logs.records] == [r.body for r in records]
    assert decode_batch(ticks[-1]).digest == document["verify"]["digest"]


def test_a_trace_is_played_and_a_demo_may_be_replaced(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    day = 14 * 86_400
    rows = [f"job-{n},{day + 60 * n},{900 + 60 * n},{1 << n % 4}" for n in range(40)]
    (trace / "cluster04.csv").write_text("job_id,submission_time,duration,num_gpu\n" + "\n".join(rows) + "\n")
    home = tmp_path / "home"
    short = {"trace": trace, "length_ms": HOUR_MS, "layout": Layout(nodes=2)}
    first = run_demo(options(home, **short))
    second = run_demo(options(home, **short, seed=2))
    assert first["ok"]
    assert second["ok"]
    assert first["jobs"]["submitted"] == 40
    assert first["verify"]["digest"] != second["verify"]["digest"]
    records, batches = stored(home)
    assert len(records) == second["events"]
    assert decode_batch(batches[-1].body).time_ms == TRACE_EPOCH_MS + 14 * 86_400_000 + HOUR_MS
    asked = {line["budget"]: line["asked_gpu_us"] for line in first["shares"]}
    assert asked["itp/cluster04"] == sum((900 + 60 * n) * (1 << n % 4) for n in range(40)) * 1_000_000
    assert asked["itp/cluster01"] == 0


def test_what_cannot_be_played_is_refused_and_nothing_is_touched(
    tmp_path: Path, start_nats: Callable[..., EmbeddedServer]
) -> None:
    with pytest.raises(DemoRefused, match="no such file"):
        run_demo(options(tmp_path / "a", trace=tmp_path / "nowhere"))
    for days in (0, 366):
        with pytest.raises(DemoRefused, match="between 1 and 365 days"):
            run_demo(options(tmp_path / "a", days=days))
    assert not (tmp_path / "a").exists()
    other = tmp_path / "other"
    (other / "jetstream").mkdir(parents=True)
    (other / "jetstream" / "precious").write_text("log")
    with pytest.raises(DemoRefused, match="no demo made"):
        run_demo(options(other))
    assert (other / "jetstream" / "precious").read_text() == "log"
    server = start_nats()
    with pytest.raises(DemoRefused, match=f"pid {server.pid}"):
        run_demo(options(server.home.root))


def test_an_interrupt_ends_it_cleanly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = (
        "from apportion.adapters.demo.play import *; from apportion.adapters.simulation.cluster import Layout;"
        "from apportion.adapters.processes.home import Home;"
        f"run_demo(DemoOptions(Home.of({str(home)!r}), layout=Layout(nodes=8), days=30))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True)
    try:
        verifier_log = home / "logs" / "demo-verify.log"
        deadline = time.monotonic() + 120
        while not verifier_log.exists():
            assert process.poll() is None, process.stderr and process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode != 0
    assert b"KeyboardInterrupt" in err
    left = [entry for entry in os.listdir("/proc") if entry.isdigit() and str(home) in command(entry)]
    assert left == []
    records, batches = stored(home)
    last = decode_batch(batches[-1].body)
    assert last.seq == records[-1].seq, "the play ends after a whole minute"


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_decision_that_cannot_be_derived_again_stops_the_verifier(
    tmp_path: Path, start_nats: Callable[..., EmbeddedServer], run_async: Callable[..., Any]
) -> None:
    world = World([Job("cluster04-1", 1_000, 600_000, 1, "cluster04")], WorldOptions(length_ms=HOUR_MS, layout=SMALL))
    logs = simulate(world, world.options.start_ms + 4 * 60_000)
    server = start_nats()

    async def follow(wrong: int) -> Follower:
        async with await Bus.open(server.url, create=True) as bus:
            for record in logs.records:
                await bus.publisher.publish(record.subject, record.body, f"r{record.seq}")
            for number, batch in enumerate(logs.batches):
                body = batch.body
                if number == wrong:
                    decoded = decode_batch(body)
                    body = encode_batch(
                        type(decoded)(
                            **{f: getattr(decoded, f) for f in decoded.__struct_fields__} | {"digest": "0" * 64}
                        )
                    )
                await bus.decisions.commit(body, batch.input_seq, number)
        follower = Follower("verify", server.home)
        await follower.start()
        follower.finish_at(logs.records[-1].seq)
        try:
            while not follower.progress.done:
                follower.check()
                await asyncio.sleep(0.02)
        finally:
            await follower.end()
        return follower

    with pytest.raises(FollowerFailed, match=r"cycle at seq \d+: digest of the state differs"):
        run_async(follow(2))


def test_a_follower_that_cannot_start_says_why(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def follow() -> None:
        follower = Follower("project", Home.of(tmp_path / "nowhere"))
        await follower.start()
        try:
            while True:
                follower.check()
                await asyncio.sleep(0.02)
        finally:
            await follower.end()

    with pytest.raises(FollowerFailed, match="no nats-server runs"):
        run_async(follow())


def test_progress_is_plain_lines_elsewhere_and_nothing_when_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WorldOptions(length_ms=10 * HOUR_MS)
    clock = iter(range(0, 1_000, 3))
    monkeypatch.setattr("apportion.adapters.demo.progress.time.monotonic", lambda: float(next(clock)))
    with Board(world, quiet=False) as board:
        for hour in range(1, 9):
            board.show(world.start_ms + hour * HOUR_MS, hour * 1_000, hour * 60, [hour * 1_000 - 50, hour * 1_000 - 20])
        board.show(world.start_ms + 10 * HOUR_MS, 10_000, 0, [9_000])
        board.show(world.start_ms + 10 * HOUR_MS, 10_000, 0, [9_500])
    told = capsys.readouterr()
    assert told.out == ""
    shown = told.err.splitlines()
    assert 3 <= len(shown) <= 6
    assert "events/s" in shown[0]
    assert "lag 50" in shown[0]
    assert "left" in shown[0]
    assert shown[0].startswith("demo   20 %  2026-01-01 02:00:00Z")
    with Board(world, quiet=True) as board:
        board.show(world.start_ms + HOUR_MS, 1_000, 60, [1])
    assert capsys.readouterr().err == ""
