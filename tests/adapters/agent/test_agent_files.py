"""What an agent keeps on disk: outbox, memory, progress, output; each read back after a crash."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.agent.logs import LogChunk, NoLog, read_log
from apportion.adapters.agent.memory import Memory, WrongAgent
from apportion.adapters.agent.naming import node_name, principal_token
from apportion.adapters.agent.outbox import Outbox
from apportion.adapters.agent.reports import end_of
from apportion.adapters.agent.rundir import Exit, RunDir, RunSpec
from apportion.adapters.processes.home import Home
from apportion.core.envelope import decode_envelope
from apportion.core.errors import LogMismatch
from apportion.core.events import NodeJoined, NodeLeft
from apportion.core.fields import Principal


def spec(workload: str = "w", run: int = 1) -> RunSpec:
    return RunSpec(
        workload=workload,
        run=run,
        node="n1",
        gpus=(0,),
        milli_each=1_000,
        nodes=("n1",),
        rank=0,
        resume_from_ms=0,
        grace_ms=0,
        event_seq=1,
        placed_ms=0,
        command=("true",),
        env={},
        cwd="/",
    )


def test_reports_keep_their_order_and_ids_over_restarts_and_failures(tmp_path: Path) -> None:
    first = Outbox(tmp_path, "agent-n1", b"secret")
    for number in range(5):
        first.put(f"report {number}", NodeLeft(node=f"n{number}"), at_ms=7)
    first.put("report 3", NodeLeft(node="other"), at_ms=8)
    second = Outbox(tmp_path, "agent-n1", b"secret")
    second.put("report 5", NodeLeft(node="n5"), at_ms=9)
    sent: list[tuple[str, str, str]] = []
    fail = [False, True, False, False, True, False, False, False]

    async def publish(subject: str, body: bytes, event_id: str) -> int:
        if fail.pop(0):
            raise TimeoutError
        envelope = decode_envelope(body)
        assert envelope.id == event_id
        sent.append((subject, event_id, msgspec.json.decode(envelope.data)["node"]))
        return len(sent)

    async def send_all() -> None:
        while second:
            try:
                await second.send_oldest(publish)
            except TimeoutError:
                continue

    asyncio.run(send_all())
    assert [node for _, _, node in sent] == ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert {subject for subject, _, _ in sent} == {"ap.ev.agent-n1.node.left"}
    assert [event_id for _, event_id, _ in sent] == [first.event_id(f"report {number}") for number in range(6)]
    assert len({event_id for _, event_id, _ in sent}) == 6
    assert Outbox(tmp_path / "x", "agent-n1", b"other").event_id("report 0") != first.event_id("report 0")
    assert not list(tmp_path.glob("*.json"))


def test_a_dropped_report_is_never_sent(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, "a", b"s")
    outbox.put("x", NodeJoined(node="n", pool="p", gpus=1), at_ms=0)
    outbox.drop("x")
    outbox.drop("x")
    assert not outbox
    assert not Outbox(tmp_path, "a", b"s")


def test_beats_grow_over_any_number_of_crashes(tmp_path: Path) -> None:
    beats: list[int] = []
    for sends in (1, 250, 0, 3):
        memory = Memory(tmp_path, "n1", "agent-n1")  # the one before is not asked to say goodbye
        beats += [memory.next_beat() for _ in range(sends)]
        memory.close()
    assert beats == sorted(set(beats))


def test_memory_of_another_node_or_log_is_refused(tmp_path: Path) -> None:
    memory = Memory(tmp_path, "n1", "agent-n1")
    memory.bind_log("log-1")
    with pytest.raises(WrongAgent, match="another agent for node 'n1'"):
        Memory(tmp_path, "n1", "agent-n1")
    memory.close()
    with pytest.raises(WrongAgent, match="'n1'"):
        Memory(tmp_path, "n2", "agent-n2")
    again = Memory(tmp_path, "n1", "agent-n1")
    again.bind_log("log-1")
    assert again.secret == memory.secret
    with pytest.raises(LogMismatch, match=r"'log-1'.*'log-2'"):
        again.bind_log("log-2")
    again.close()


@pytest.mark.parametrize(
    ("text", "progress_ms"),
    [
        ("", 0),
        ("5\n", 5),
        ("5", 0),
        ("5\n17\n99", 17),
        ("5\n-3\nx\n1e9\n", 5),
        ("5\n31622400001\n", 5),
        (" 8 \r\n", 8),
        ("1\n" * 5_000 + "2\n", 2),
        ("x" * 10_000 + "\n3\n", 3),
    ],
)
def test_progress_is_the_newest_whole_line_that_makes_sense(tmp_path: Path, text: str, progress_ms: int) -> None:
    folder = RunDir(tmp_path, "w", 1)
    folder.create(spec())
    folder.progress_path.write_text(text)
    assert folder.progress_ms() == progress_ms


@pytest.mark.parametrize(
    ("exit_", "outcome", "detail"),
    [
        (Exit(exit_code=0), "succeeded", ""),
        (Exit(exit_code=2), "failed", ""),
        (Exit(exit_code=-9), "failed", ""),
        (Exit(exit_code=0, signalled=True), "succeeded", ""),
        (Exit(exit_code=143, signalled=True), "stopped", ""),
        (Exit(exit_code=-15, signalled=True), "stopped", ""),
        (Exit(exit_code=-9, signalled=True, killed=True), "stopped", "SIGKILL at the end of its grace"),
        (Exit(refused="x" * 2_000), "refused", "x" * 1_000),
    ],
)
def test_what_an_end_is_reported_as(exit_: Exit, outcome: str, detail: str) -> None:
    event = end_of(spec(), exit_)
    assert (event.outcome, event.detail, event.exit_code) == (outcome, detail, exit_.exit_code)  # type: ignore[union-attr]  # none is lost


@given(st.text(max_size=300))
def test_any_name_becomes_a_token(text: str) -> None:
    assert msgspec.convert(principal_token(text), Principal) == principal_token(text)
    assert principal_token(principal_token(text)) == principal_token(text)
    assert node_name(text).isascii()


def write(home: Home, run: int, **streams: str) -> RunDir:
    folder = RunDir(home.agents / "n1", "w", run)
    folder.create(spec(run=run))
    for name, text in streams.items():
        (folder.path / name).write_text(text)
    return folder


def test_output_is_read_per_run(tmp_path: Path) -> None:
    home = Home.of(tmp_path)
    with pytest.raises(NoLog, match=r"no output of w .*runs here: none"):
        list(read_log(home, "w"))
    write(home, 1, stdout="one\n", stderr="oops\n")
    write(home, 10, stdout="ten\n", stderr="")
    assert list(read_log(home, "w")) == [LogChunk("n1", 10, "stdout", "ten\n")]
    assert list(read_log(home, "w", 1)) == [LogChunk("n1", 1, "stdout", "one\n"), LogChunk("n1", 1, "stderr", "oops\n")]
    with pytest.raises(NoLog, match=r"run 2 of w .*runs here: 1, 10"):
        list(read_log(home, "w", 2))


def test_following_waits_for_the_run_and_ends_with_it(tmp_path: Path) -> None:
    home = Home.of(tmp_path)
    chunks: list[LogChunk] = []
    deadline = time.monotonic() + 20

    def follow() -> None:
        chunks.extend(read_log(home, "w", follow=True, go_on=lambda: time.monotonic() < deadline))

    reader = threading.Thread(target=follow)
    reader.start()
    time.sleep(0.15)
    folder = RunDir(home.agents / "n1", "w", 1)
    folder.create(spec())
    script = "import time\nfor t in ('ä','b','c'): print(t,flush=True); time.sleep(0.15)"
    with (folder.path / "stdout").open("wb") as out:
        subprocess.run([sys.executable, "-X", "utf8", "-c", script], stdout=out, check=True)
    folder.write_exit(Exit())
    reader.join(20)
    assert not reader.is_alive()
    assert time.monotonic() < deadline
    assert "".join(chunk.text for chunk in chunks) == "ä\nb\nc\n"
