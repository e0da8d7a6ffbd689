"""The program as a whole, without a server: help, usage errors, unreachable servers, JSON errors, light imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from apportion.adapters.cli.failure import INTERRUPTED, UNREACHABLE, USAGE
from apportion.adapters.cli.main import SECTIONS, command, run

HEAVY = ("duckdb", "numba", "numpy", "faststream", "nats", "rich.table", "rich.markdown", "msgspec")


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("APPORTION_SERVER", "APPORTION_PRINCIPAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("APPORTION_DIR", str(tmp_path / "nowhere"))


def _loaded_by(*arguments: str) -> set[str]:
    """Return the heavy modules loaded after ``apportion <arguments>`` in a fresh interpreter."""
    code = (
        "import sys\nfrom apportion.adapters.cli.main import run\n"
        f"run({list(arguments)!r})\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.splitlines()[-1].split()) if done.stderr.splitlines() else set()


@pytest.mark.parametrize("arguments", [["--help"], ["submit", "--help"], ["budget", "set", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert _loaded_by(*arguments) == set()


def _commands(group: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, found_command in group.commands.items():  # type: ignore[attr-defined]  # groups have commands
        found += _commands(found_command, (*path, name)) if hasattr(found_command, "commands") else [(*path, name)]
    return found


ALL_COMMANDS = _commands(command())


def test_every_verb_of_the_release_exists() -> None:
    expected = """up demo serve project agent ingress status queue why job share usage audit sql logs verify replay snapshot
    schema doctor statement submit cancel reprioritize bench"""
    groups = {"budget": "list show set grant plan transfer close", "member": "grant revoke", "policy": "set",
              "node": "list cordon uncordon drain", "events": "tail show export", "config": "show"}  # fmt: skip

    wanted = {(name,) for name in expected.split()}
    wanted |= {(group, name) for group, names in groups.items() for name in names.split()}

    assert wanted <= set(ALL_COMMANDS)


@pytest.mark.parametrize("path", ALL_COMMANDS, ids=" ".join)
def test_every_command_has_help_and_says_what_it_does(path: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0

    shown = capsys.readouterr().out
    assert "--json" in shown
    assert "--dir" in shown


@pytest.mark.parametrize("path", ALL_COMMANDS, ids=" ".join)
def test_no_option_tells_its_default_twice(path: Sequence[str]) -> None:
    found = command()
    for name in path:
        found = found.commands[name]
    context = click.Context(found)
    records = [option.get_help_record(context) for option in found.params]

    assert [record for record in records if record and record[1].count("[default") > 1] == []


def test_the_first_help_shows_every_verb_in_a_section(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    run(["--help"])

    shown = capsys.readouterr().out
    assert all(f"\n{heading}:\n" in shown for heading in SECTIONS)
    assert {path[0] for path in ALL_COMMANDS} <= {
        line.split()[0] for line in shown.splitlines() if line.startswith("  ")
    }
    assert max(len(line) for line in shown.splitlines()) <= 80


READS = ["status", "queue", "share", "usage", "audit", "why x", "job x", "budget list", "node list", "events tail",
         "verify", "snapshot", "sql select+1", "statement --budget b", "share b"]  # fmt: skip
WRITES = ["submit --budget b -- true", "cancel x", "budget set b --share 1", "node cordon n", "member grant b m"]


@pytest.mark.parametrize("line", READS + WRITES)
def test_without_a_server_it_says_what_to_start(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run([word.replace("+", " ") for word in line.split()])

    told = capsys.readouterr()
    assert code == UNREACHABLE
    assert told.out == ""
    assert os.environ["APPORTION_DIR"] in told.err
    assert "apportion up" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("line", READS[:4] + WRITES[:2])
def test_a_named_server_that_is_not_there(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    words[1:1] = ["--server", "nats://127.0.0.1:1"]

    code = run(words)

    told = capsys.readouterr()
    assert code == UNREACHABLE
    assert "nats://127.0.0.1:1" in told.err
    assert "Traceback" not in told.err


def test_errors_are_json_when_answers_are(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["queue", "--json"])

    told = capsys.readouterr()
    error = json.loads(told.err)["error"]
    assert told.out == ""
    assert (code, error["code"], error["kind"]) == (UNREACHABLE, UNREACHABLE, "unreachable")
    assert error["do"]


BAD = [
    ("submit --budget b", "nothing to run"),
    ("submit -- true", "no budget"),
    ("submit --budget b --gpus two -- true", "'two' is not a number of GPUs"),
    ("submit --budget b --gpus 0 -- true", "'0' GPUs"),
    ("submit --budget b --min-runtime 10 -- true", "'10' is not a duration"),
    ("submit --budget b --wait --detach -- true", "--wait and --detach"),
    ("cancel", "JOB"),
    ("budget set lab", "--share"),
    ("budget set lab --share 35", "'35' is more than the whole"),
    ("budget grant lab --gpu-hours lots", "'lots' is not a number of GPU-hours"),
    ("member grant lab ana --role king", "king"),
    ("policy set p", "no rule is named"),
    ("queue --json --csv", "--json and --csv"),
    ("queue --at 2026-01-01 --seq 4", "--at and --seq"),
    ("queue --at tomorrow", "'tomorrow' is not a time"),
    ("queue --seq -1", "-1"),
    ("queue --as x", "--as"),
    ("cancel x --as a.b", "'a.b' is not a principal"),
    ("bench nothing", "no measurement 'nothing'"),
    ("schema workload.submited", "workload.submitted"),
    ("schema workload.submitted.v9", "no version 9"),
    ("quue", "queue"),
    ("agent --gpus 0", "0"),
    ("agent --beat 1ms", "too short"),
    ("statement", "--budget"),
    ("verify --to 0", "0"),
    ("", "verb"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=[line or "(nothing)" for line, _said in BAD])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_usage_errors_name_the_value(line: str, said: str, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    if as_json and "--json" not in words:
        words[1:1] = ["--json"] if words and words[0] not in ("budget", "member", "policy") else []
        words[2:2] = ["--json"] if words and words[0] in ("budget", "member", "policy") else []

    code = run(words)

    told = capsys.readouterr()
    assert code == USAGE
    assert told.out == ""
    assert said in told.err
    if "--json" in words:
        assert json.loads(told.err)["error"]["code"] == USAGE


def test_schema_prints_what_the_code_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("workload.submitted", "run.placed", "batch", "asyncapi"):
        assert run(["schema", name, "--json"]) == 0

        document = json.loads(capsys.readouterr().out)
        assert document


def test_config_shows_where_values_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPORTION_PRINCIPAL", "ana")

    assert run(["config", "show", "--json"]) == 0

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["config"]}
    assert rows["directory"]["value"] == str(Path(os.environ["APPORTION_DIR"]))
    assert (rows["principal"]["value"], rows["principal"]["from"]) == ("ana", "$APPORTION_PRINCIPAL")


def test_doctor_finds_no_fault_in_a_machine_where_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--json"])

    found = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert found["server"]["state"] == "off"
    assert "apportion up" in found["server"]["do"]
    assert code == (1 if any(row["state"] == "bad" for row in found.values()) else 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_verbs(shell: str) -> None:
    variables = {
        "bash": {"COMP_WORDS": "apportion que", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "apportion que"},
        "fish": {"_TYPER_COMPLETE_ARGS": "apportion que", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [sys.executable, "-m", "apportion.adapters.cli.main"],
        env={**os.environ, **variables, "_APPORTION_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "queue" in done.stdout
    assert "submit" not in done.stdout


@pytest.mark.parametrize("option", ["days=x", "days=1.5", "days=true", "weeks=1", "days"])
def test_an_option_of_a_measurement_must_exist_and_be_of_its_type(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "fold", "--set", option]) == USAGE

    said = capsys.readouterr().err
    assert option.partition("=")[0] in said
    assert "Traceback" not in said


MEASURED = """
import sys
from apportion.adapters import bench
bench.__path__.append(sys.argv[1])
sys.argv[1:] = ["bench", "endless"]
from apportion.adapters.cli.main import main
sys.exit(main())
"""

ENDLESS = """
import time
def run():
    print("begun", flush=True)
    for _ in range(600):
        time.sleep(0.1)
    return {}
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_measurement_ends_when_it_is_told_to(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    code = [sys.executable, "-c", MEASURED, str(tmp_path)]
    with subprocess.Popen(
        code, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as a command in the foreground begins
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        _out, err = process.communicate(timeout=20)

    assert process.returncode == INTERRUPTED
    assert b"interrupted" in err
