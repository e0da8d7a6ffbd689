"""A user's day with the program, as a user: a real ``apportion up`` in a directory of its own, real processes, real output.

One cluster serves all tests of this file; each uses jobs and budgets of its own. What is checked: stdout, stderr, exit
codes, and that nothing ever prints a traceback.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apportion.adapters.cli.main import run

PATIENCE_S = 60.0
PROGRAM = [sys.executable, "-m", "apportion.adapters.cli.main"]


class Done(NamedTuple):
    """One command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class User:
    """Somebody at a terminal with this directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "APPORTION_DIR": str(directory),
            "APPORTION_PRINCIPAL": "ana",
            "COLUMNS": "120",
        }
        self.environment.pop("APPORTION_SERVER", None)

    def start(self, line: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *line.split()],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            **options,
        )

    def run(self, line: str, *more: str, code: int | None = 0, columns: int = 120) -> Done:
        """Run ``apportion <line> <more>`` in this process; the exit code must be ``code`` (None: any)."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.directory)
            patch.delenv("APPORTION_SERVER", raising=False)
            for name, value in {**self.environment, "COLUMNS": str(columns)}.items():
                patch.setenv(name, value)
            ended = run([*line.split(), *more])
        done = Done(ended, out.getvalue(), err.getvalue())
        assert code is None or done.code == code, f"{line} {more}: exit {done.code}\n{done.out}\n{done.err}"
        return done

    def run_process(self, line: str, *more: str, code: int = 0) -> Done:
        """Run ``apportion <line> <more>`` as a process of its own."""
        ended = subprocess.run(
            [*PROGRAM, *line.split(), *more],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=self.directory,
            check=False,
        )
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert "Traceback" not in done.err, done.err
        assert done.code == code, f"{line} {more}: exit {done.code}\n{done.out}\n{done.err}"
        return done

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        """Wait until ``holds`` returns something true, for at most PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = holds()
            if found:
                return found
            time.sleep(0.2)
        raise AssertionError(f"never happened: {what}")

    def state(self, job: str) -> str:
        return str(self.run(f"job {job} --json").json["workload"]["state"])

    def left(self, budget: str) -> int:
        rows = self.run("budget list --json").json["rows"]
        return int(next(row["left_gpu_us"] or 0 for row in rows if row["budget"] == budget))


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Start a cluster of eight simulated GPUs; stop it, and its runs, at the end."""
    directory = tmp_path_factory.mktemp("installation")
    ana = User(directory)
    with (directory / "up.err").open("w") as err:
        up = subprocess.Popen(
            [*PROGRAM, "up", "--gpus", "8", "--node", "n1", "--beat", "500ms", "--stop-runs"],
            env=ana.environment,
            stdout=err,
            stderr=err,
            cwd=directory,
        )
    try:
        ana.until("ready", lambda: "ready: node n1" in (directory / "up.err").read_text() or up.poll() is not None)
        assert up.poll() is None, (directory / "up.err").read_text()
        yield ana
    finally:
        up.send_signal(signal.SIGINT)
        try:
            code = up.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            up.kill()
            raise
        told = (directory / "up.err").read_text()
        assert code == 0, told
        assert "Traceback" not in told


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


def test_reads_say_how_fresh_they_are_and_fit_eighty_columns(user: User) -> None:
    for line in ("status", "queue", "share", "share lab/llm", "usage --by day,budget,user", "budget list", "node list",
                 "budget show lab/llm/olmo", "statement --budget lab", "audit", "events tail"):  # fmt: skip
        done = user.run(line, columns=80)

        assert re.search(r"^as of seq [\d,]+, time \d{4}-\d\d-\d\dT[\d:.]+Z, lag \d+", done.err.splitlines()[-1]), line
        assert max(len(row) for row in done.out.splitlines()) <= 80, line


def test_a_manager_sees_what_is_allowed_what_was_spent_and_what_is_left(user: User) -> None:
    """A grant, a run that pays from it, and then the same numbers in share, budget show and statement."""
    user.run("budget set lab/paid --share 0%")
    user.run("budget grant lab/paid --gpu-hours 10 --reason", "first quarter")
    user.run("submit --budget lab/paid --gpus 2 --min-runtime 1m --name spender -- sleep 1000")
    user.until("running", lambda: user.state("spender") == "running")
    shares = user.run("share --json").json
    row = next(row for row in shares["rows"] if row["budget"] == "lab/paid")
    assert row["runs_protected_milli"] + row["runs_funded_milli"] == 2_000
    assert row["arithmetic"].startswith("allowance ")
    assert sum(pool["lag_gpu_us"] for pool in shares["pools"]) == 0
    assert f"lab/paid: {row['arithmetic']}" in user.run(f"share --seq {shares['as_of']['seq']}").out
    queue = user.run("queue --json").json["rows"]
    assert [job["standing"] for job in queue if job["name"] == "spender"] == ["protected"]
    assert "protected to" in user.run("job spender").out
    assert "2 protected" in user.run("status").out
    user.run("cancel spender")
    user.until("over", lambda: user.state("spender") == "cancelled")

    shown = user.run("budget show lab/paid").out
    assert re.search(r"balance \d+\.\d GPU-h \(granted 10\.0, charged \d\.\d", shown)
    assert "burn-down in pool local" in shown
    picture, sheet = user.directory / "burn.svg", user.directory / "paid.html"
    user.run(f"budget show lab/paid --svg {picture}")
    assert picture.read_text().startswith("<svg")
    document = user.run(f"statement --budget lab/paid --period this-month --json --html {sheet}").json
    made = document["statements"][0]
    assert [line["kind"] for line in made["lines"]] == ["grant", "run"]
    assert made["opening_gpu_us"] + sum(part["gpu_us"] for part in made["parts"]) == made["closing_gpu_us"]
    budget = user.run(f"budget show lab/paid --seq {document['as_of']['seq']} --json").json["budget"][0]
    assert budget["balance_gpu_us"] == made["closing_gpu_us"] == 36_000_000_000 - made["funded_gpu_us"]
    assert "<caption>2 lines" in sheet.read_text()
    rows = list(csv.DictReader(io.StringIO(user.run("statement --budget lab/paid --csv").out)))
    assert [line["kind"] for line in rows] == ["opening", "grant", "run", "closing"]
    assert rows[-1]["balance_gpu_us"] == str(made["closing_gpu_us"])
    assert "exact to the" in user.run("statement --budget lab/paid").out
    assert "is not a period" in user.run("statement --budget lab/paid --period november", code=2).err
    assert "the data ends at" in user.run("statement --budget lab/paid --period 2090-01", code=2).err


def test_json_csv_and_fields(user: User) -> None:
    document = user.run("budget list --json").json
    assert document["as_of"]["seq"] > 0
    by_path = {row["budget"]: row for row in document["rows"]}
    assert by_path["lab/llm/olmo"]["share_ppm"] == 700_000

    rows = list(csv.DictReader(io.StringIO(user.run("budget list --csv").out)))
    assert {row["budget"] for row in rows} == set(by_path)

    picked = user.run("budget list -o budget,share_ppm --csv").out.splitlines()
    assert picked[0] == "budget,share_ppm"

    wrong = user.run("budget list -o wrong", code=2)
    assert "no field 'wrong'" in wrong.err
    assert "share_ppm" in wrong.err


def test_an_earlier_state_can_be_asked_for(user: User) -> None:
    now = user.run("queue --json").json["as_of"]
    then = user.run(f"budget list --seq {now['seq']} --json").json

    assert then["as_of"]["seq"] <= now["seq"]
    early = user.run("queue --at 2001-01-01 --json").json
    assert early["rows"] == []
    beyond = user.run("queue --seq 999999999", code=4)
    assert "999999999" in beyond.err


def test_shares_and_grants_are_planned_ahead_and_shown_before_they_come_true(user: User) -> None:
    user.run("budget set lab/planned --share 0%")
    said = user.run("budget set lab/planned --share 0% --from 2100-01-01 --until 2100-02-01 --reason", "the big run")
    assert "from 2100-01-01" in said.out
    shown = user.run("budget show lab/planned").out
    assert "planned shares" in shown
    assert "the big run" in shown
    past = user.run("budget set lab/planned --share 0% --until 2001-01-01", code=1)
    assert "--until" in past.err
    user.run("budget plan lab/planned --gpu-hours 10 --every month --carry 25% --reason", "an allocation")
    user.until("granted", lambda: user.left("lab/planned") == 36_000_000_000)
    assert "an allocation" in user.run("budget show lab/planned").out
    assert "at most 25 %" in user.run("budget show lab/planned --json").out
    assert "a GPU-hour counts 1 in pool" in user.run("usage --weighted").out


def test_budgets_and_members_are_changed_by_events_and_refusals_say_why(user: User) -> None:
    assert "accepted" in user.run("budget set lab/new --share 0% --reason", "a test").out
    shown = user.run("budget show lab/new").out
    assert "a test" in shown
    assert "ana" in shown
    assert "accepted" in user.run("budget grant lab/new --gpu-hours 1.5").out
    rows = {row["budget"]: row for row in user.run("budget list --json").json["rows"]}
    assert rows["lab/new"]["granted_gpu_us"] == 5_400_000_000

    too_much = user.run("budget set lab/llm --share 90%", code=1)
    assert "130.0 %" in too_much.err
    assert "lower another budget's share" in too_much.err
    stranger = user.run("submit --budget lab/llm/olmo --as bob -- true", code=1)
    assert "bob may not" in stranger.err
    assert "member grant" in stranger.err
    user.run("member grant lab/llm/olmo bob")
    assert "admitted" in user.run("submit --budget lab/llm/olmo --as bob --name his --wait -- true").err
    user.run("member revoke lab/llm/olmo bob")
    assert "bob may not" in user.run("submit --budget lab/llm/olmo --as bob -- true", code=1).err
    not_leaf = user.run("submit --budget lab/llm -- true", code=1)
    assert "workloads charge leaves only" in not_leaf.err
    typo = user.run("submit --budget lab/llm/olm -- true", code=2)
    assert "did you mean lab/llm/olmo" in typo.err
    too_big = user.run("submit --budget lab/llm/olmo --gpus 64 -- true", code=1)
    assert "nodes for this shape" in too_big.err
    odd = user.run("submit --budget lab/llm/olmo --gpus 1.5 -- true", code=1)
    assert "cannot be laid out" in odd.err
    poor = user.run("budget transfer --from lab/new --to lab/robotics --gpu-hours 99", code=1)
    assert "refused" in poor.err
    user.run("budget close lab/new")
    assert "closed" in user.run("submit --budget lab/new -- true", code=1).err
    assert "no job 'nothing'" in user.run("why nothing", code=2).err
    assert "no node 'n9'" in user.run("node cordon n9", code=2).err
    longer = user.run("submit --budget lab/llm/olmo --min-runtime 40d -- true", code=1)
    assert "above the pool's cap of 1d" in longer.err


def test_a_dry_run_publishes_nothing(user: User) -> None:
    before = user.run("events tail -n 1 --json").json["rows"][-1]["seq"]

    done = user.run("submit --budget lab/llm/olmo --gpus 2 --dry-run -- python train.py")
    document = user.run("submit --budget lab/llm/olmo --gpus 2 --dry-run --json -- python train.py").json

    assert "nothing was sent" in done.out
    assert "entitled to" in done.out
    assert document["event"]["data"]["command"] == ["python", "train.py"]
    assert user.run("events tail -n 1 --json").json["rows"][-1]["seq"] == before


def test_detached_writes_return_with_the_sequence(user: User) -> None:
    done = user.run("member grant lab/llm carol --detach --json").json

    assert done["decided"] is False
    assert done["event_seq"] > 0
    shown = user.run(f"events show {done['event_seq']} --json").json
    assert shown["body"]["data"]["member"] == "carol"


def test_a_cordoned_node_takes_nothing_and_drain_tells_what_still_runs(user: User) -> None:
    user.run("submit --budget lab/robotics --name stays --min-runtime 1h -- sleep 1000")
    user.until("running", lambda: user.state("stays") == "running")

    drained = user.run("node drain n1 --reason", "new fan")

    assert re.search(r"stays-\w+ run 1, 1 GPU, protected until", drained.out)
    assert "drain stops nothing" in drained.out
    listed = user.run("node list").out
    assert "cordoned" in listed
    assert "new fan" in listed
    assert "waits" in user.run("submit --budget lab/llm/eval --name later -- true").out
    user.run("node uncordon n1")
    user.until("over", lambda: user.state("later") == "succeeded")
    user.run("cancel stays")


def test_everything_that_was_decided_is_derived_again_and_adds_up(user: User) -> None:
    verified = user.run("verify --json").json
    assert verified["ok"]
    assert verified["cycles"] > 5
    assert "derived again, byte for byte" in user.run("verify").out

    audited = user.run("audit --json").json
    assert audited["checks"] >= 20
    assert audited["failed"] == 0
    assert user.run("audit --from-log --json").json["failed"] == 0

    state = user.run(f"replay --to {verified['to_seq']} --json").json
    assert state["digest"] == verified["digest"]
    assert {budget["budget"] for budget in state["budgets"]} >= {"lab", "lab/llm/olmo"}

    made = user.run("snapshot --json").json
    assert user.run(f"verify --from {made['seq']} --json").json["ok"]


def test_usage_adds_up_to_what_the_books_say(user: User) -> None:
    document = user.run("usage --by budget --json").json
    status = user.run(f"status --seq {document['as_of']['seq']} --json").json["rows"][0]

    assert document["total"]["funded_gpu_us"] == status["funded_gpu_us"]
    assert document["total"]["unfunded_gpu_us"] == status["unfunded_gpu_us"]
    used = status["funded_gpu_us"] + status["unfunded_gpu_us"]
    assert status["supply_gpu_us"] == used + status["idle_gpu_us"] + status["down_gpu_us"]


def test_sql_reads_and_nothing_else(user: User) -> None:
    user.until("a published copy", lambda: list((user.directory / "published").glob("*.duckdb")))
    done = user.run("sql --json", "select count(*) as n, max(seq) as gpu_us from fact.cycle").json
    table = user.run("sql", "select count(*) as n, max(seq) as gpu_us from fact.cycle")

    assert done["rows"][0]["n"] > 0
    assert table.out.splitlines()[0].split() == ["n", "gpu_us"]
    assert table.out.splitlines()[1].split()[0].isdigit()
    assert "fact.workload" in user.run("sql").out
    assert "only SELECT" in user.run("sql", "drop table fact.workload", code=2).err
    assert "not available" in user.run("sql", "select * from read_csv('/etc/passwd')", code=2).err
    assert "selec" in user.run("sql", "selec 1", code=2).err
    query = user.directory / "query.sql"
    query.write_text("select 41 + 1 as answer")
    assert user.run(f"sql --file {query} --csv").out == "answer\n42\n"


def test_events_are_exported_whole(user: User) -> None:
    out = user.directory / "events.ndjson"
    done = user.run(f"events export --out {out} --to 50 --json").json

    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert done["events"] == 50
    assert [line["seq"] for line in lines] == list(range(1, 51))
    assert lines[0]["type"] == "log.opened"


def test_an_interrupt_and_a_closed_pipe_are_clean(user: User) -> None:
    following = user.start("events tail -f --heartbeats", start_new_session=True)
    assert following.stdout is not None
    following.stdout.readline()
    following.send_signal(signal.SIGINT)
    _out, err = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 130
    assert "Traceback" not in err

    piped = subprocess.run(
        ["sh", "-c", f"{' '.join(PROGRAM)} events export | head -n 1"],
        env=user.environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert json.loads(piped.stdout)["seq"] == 1
    assert "Traceback" not in piped.stderr
    assert "BrokenPipe" not in piped.stderr


def test_doctor_is_content(user: User) -> None:
    found = {row["check"]: row["state"] for row in user.run("doctor --json").json["checks"]}

    assert {name: found[name] for name in ("server", "EVENTS", "DECISIONS", "projector", "clock")} == dict.fromkeys(
        ("server", "EVENTS", "DECISIONS", "projector", "clock"), "ok"
    )


def test_a_second_up_is_refused_and_says_who_runs(user: User) -> None:
    done = user.run("up --gpus 1", code=1)

    assert "already runs" in done.err
    assert re.search(r"pid \d+", done.err)
