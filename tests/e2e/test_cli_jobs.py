"""A user's jobs, as a user: submitted, run, waited for, cancelled; and the node they run on."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Any

import msgspec
import pytest

from apportion.adapters.cli import writes
from apportion.adapters.cli.output import Answer
from apportion.adapters.explaining.commands import submit_words
from apportion.core.events import WorkloadSubmitted
from tests.e2e.user import User


def test_a_job_really_runs_and_its_output_and_account_can_be_read(user: User) -> None:
    script = "import os,sys; print('GPUs', os.environ['CUDA_VISIBLE_DEVICES']); print('on the side', file=sys.stderr)"

    done = user.run_process(
        "submit --budget lab/llm/olmo --gpus 2 --min-runtime 10m --name hello --wait --", sys.executable, "-c", script
    )

    assert re.search(r"hello-\w{8}: admitted to lab/llm/olmo in pool local: 2 GPUs, protected for 10m", done.err)
    assert re.search(r"placed as run 1 on n1 GPUs \d-\d", done.err)
    assert "finished" in done.err
    logs = user.run_process("logs hello")
    assert re.fullmatch(r"GPUs \d,\d\n", logs.out)
    assert "on the side" in logs.err
    job = user.run("job hello").out
    assert "ana submitted it" in job
    assert "succeeded" in job
    runs = user.run("job hello --json").json["runs"]
    assert [run["outcome"] for run in runs] == ["succeeded"]
    assert runs[0]["funded_gpu_us"] == 2000 * (runs[0]["end_ms"] - runs[0]["placed_ms"])


def test_the_exit_code_of_a_job_is_the_exit_code_of_wait(user: User) -> None:
    done = user.run("submit --budget lab/llm/eval --name breaks --wait -- sh -c", "exit 7", code=7)

    assert "failed with exit code 7" in done.err
    assert user.state("breaks") == "failed"


def test_cancel_stops_a_process_with_its_grace(user: User) -> None:
    user.run("submit --budget lab/robotics --name sleeper --grace 20s -- sleep 1000")
    user.until("running", lambda: user.state("sleeper") == "running")

    done = user.run("cancel sleeper --reason", "not needed any more")

    assert "SIGTERM" in done.out
    user.until("over", lambda: user.state("sleeper") == "cancelled")
    assert "not needed any more" in user.run("job sleeper").out
    again = user.run("cancel sleeper", code=1)
    assert "has ended" in again.err


@pytest.mark.parametrize(
    "wishes",
    [
        {"gpus_milli": 500, "min_runtime_ms": 0, "expected_runtime_ms": 5_400_000, "priority": 3, "max_failures": 2},
        {"gpus_milli": 16_000, "nodes": 2, "exclusive": True, "labels": {"gen": "a", "disk": "fast"}, "cpu_milli": 8_000,
         "memory_mib": 512, "gpu_memory_mib": 80, "near": "rack", "movable": True},
        {"gpus_milli": 4_000, "loose": True, "apart": "g", "apart_level": "rack", "min_runtime_ms": 90_000},
        {"gpus_milli": 8_000, "nodes": 2, "block": True, "within": "rack", "expected_runtime_ms": 1_500},
    ],
)  # fmt: skip
def test_a_command_that_is_suggested_asks_for_what_was_tried(
    user: User, wishes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[WorkloadSubmitted] = []

    async def kept(_source: Any, _place: Any, event: WorkloadSubmitted, _options: Any) -> Answer:
        events.append(event)
        return Answer()

    monkeypatch.setattr(writes, "dry_run", kept)  # what would come of it here is not asked
    wishes = {"min_runtime_ms": 60_000, **wishes}
    tried = WorkloadSubmitted(workload="imagined-1", budget="lab/llm/olmo", pools=("local",), **wishes)
    words = shlex.split(submit_words(tried).removeprefix("apportion ").removesuffix(" -- COMMAND"))

    user.run(" ".join([*words, "--dry-run --"]), "true")

    beside: dict[str, Any] = {"workload": "imagined-1", "command": (), "env": {}, "cwd": "", "name": ""}
    assert [msgspec.structs.replace(event, **beside) for event in events] == [tried]


def test_a_job_that_waits_says_why_and_what_helps(user: User) -> None:
    holder = user.run("submit --budget lab/robotics --gpus 8 --name holder --json -- sleep 1000").json["job"]
    try:
        user.until("running", lambda: user.state(holder) == "running")
        done = user.run("submit --budget lab/robotics --gpus 4 --name waiter -- true")
        assert "waits: " in done.out
        queue = user.run("queue")
        assert re.search(r"waiter-\w+ +pending +4 +lab/robotics", queue.out)
        assert re.search(r"holder-\w+ +running +8 +lab/robotics", queue.out)
        why = user.run("why waiter").out
        assert "it needs 4 GPUs" in why
        assert "what helps" in why
        assert re.search(r"holder-\w+ +8 +lab/robotics", why), "who holds the node that would do"
        told = user.run("why waiter --json").json
        assert told["explanation"]["causes"][0]["reason"] == told["reason"][0]["reason"] == "no_free_gpus"
        assert told["expected"]["basis"] == "nothing"
        changes = {change["kind"]: change for change in told["explanation"]["changes"]}
        assert changes["hold"]["commands"] == [f"apportion cancel {holder}"]
        assert "changes" not in user.run("why waiter --fast --json").json["explanation"]
        found = user.run("why-not n1 waiter --json").json
        assert found["first_failing"] == "free_gpus"
        assert "0 GPUs free for it, 4 GPUs needed" in user.run("why-not n1 waiter").out
        assert "does not wait" in user.run(f"why-not n1 {holder}", code=1).err
        assert "was not preempted" in user.run("why-preempted waiter", code=1).err
        rows = user.run("queue --state pending --json").json["rows"]
        assert [(row["reason"], row["gpus_milli"]) for row in rows if row["name"] == "waiter"] == [
            ("no_free_gpus", 4000)
        ]
        user.run("reprioritize waiter 5")
        assert user.run("job waiter --json").json["workload"]["workload"].startswith("waiter")
    finally:
        user.run("cancel waiter", code=None)
        user.run(f"cancel {holder}")
    user.until("over", lambda: user.state(holder) == "cancelled")


def test_who_was_preempted_is_told_by_which_numbers(user: User) -> None:
    ask = "submit --budget lab/robotics --gpus 4 --min-runtime 1s --json -- sleep 1000"
    low = [user.run(ask).json["job"] for _job in range(2)]
    taker = ""
    try:
        user.until("both run", lambda: all(user.state(job) == "running" for job in low))
        taker = user.run("submit --budget lab/llm/olmo --gpus 4 --name taker --json -- sleep 1000").json["job"]
        user.until("it runs", lambda: user.state(taker) == "running")
        (loser,) = [job for job in low if user.state(job) != "running"]
        told = " ".join(user.run(f"why-preempted {loser}").out.split())
        assert f"to make room for {taker} of lab/llm/olmo" in told
        assert "nobody paid for it" in told
        found = user.run(f"why-preempted {loser} --json").json
        assert all(check["holds"] for check in found["checks"])
        assert {row["workload"] for row in found["considered"]["cheapest"] if row["workload"] == loser} == {loser}
        assert user.run(f"why-preempted {loser} --run 7", code=1).err
    finally:
        for job in [*low, taker]:
            user.run(f"cancel {job}", code=None)
    user.until("over", lambda: all(user.state(job) == "cancelled" for job in [*low, taker]))


def test_a_dry_run_publishes_nothing(user: User) -> None:
    before = user.run("events tail -n 1 --json").json["rows"][-1]["seq"]

    done = user.run("submit --budget lab/llm/olmo --gpus 2 --dry-run -- python train.py")
    document = user.run("submit --budget lab/llm/olmo --gpus 2 --dry-run --json -- python train.py").json

    assert "nothing was sent" in done.out
    assert "entitled to" in done.out
    assert document["event"]["data"]["command"] == ["python", "train.py"]
    assert user.run("events tail -n 1 --json").json["rows"][-1]["seq"] == before
