"""The verbs of import at a terminal: what they say, what they keep, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.cli.failure import FAILED, OK, USAGE
from apportion.adapters.cli.main import run
from tests.imports.reading import dumped, row

GOOD = [
    row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "2017-10-28T02:00:00"),
    row("8", "2017-10-28T00:00:00", "2017-10-28T23:00:00", "2017-10-29T01:00:00", account="arts", user="ben"),
]
TREE = "<allocations><queue name='a'><weight>3</weight></queue><queue name='b'/></allocations>"


class Terminal:
    """Somebody at a terminal with an installation of his own, and no server."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def run(self, *arguments: str, code: int = OK) -> str:
        assert run(arguments) == code, self._capsys.readouterr().err
        self.err = ""
        out, self.err = self._capsys.readouterr()
        return out

    def json(self, *arguments: str, code: int = OK) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code))

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.setenv("APPORTION_DIR", str(tmp_path / "installation"))
    monkeypatch.setenv("APPORTION_PRINCIPAL", "ana")
    monkeypatch.delenv("APPORTION_SERVER", raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    return Terminal(tmp_path, capsys)


def test_an_import_is_kept_and_asked(terminal: Terminal) -> None:
    path = terminal.file("dump.txt", dumped(GOOD))
    told = terminal.json("import", "sacct", path)
    usage = terminal.json("import", "usage", "--by", "day,account")

    assert (told["attempts"], told["refused"], told["merged"]) == (2, 0, {"new": 2, "improved": 0, "known": 0})
    assert [(row["day"], row["account"], row["gpu_us"]) for row in usage["rows"]] == [
        ("2017-10-28", "arts", 8 * 3_600_000_000), ("2017-10-28", "physics", 8 * 3_600_000_000),
        ("2017-10-29", "arts", 8 * 3_600_000_000)
    ]  # fmt: skip
    assert "physics" in terminal.run("import", "usage")
    assert "dump.txt" in terminal.run("import", "files")
    assert terminal.run("import", "audit").startswith("all ")
    assert terminal.json("import", "sacct", path)["merged"] == {"new": 0, "improved": 0, "known": 2}


def test_a_malformed_row_exits_with_1_and_the_rest_is_kept(terminal: Terminal) -> None:
    path = terminal.file("dump.txt", dumped([*GOOD, "half|a|row"]))
    out = terminal.run("import", "sacct", path, code=FAILED)

    assert "2 attempts, 1 not read, 1 passed over" in out
    assert "4  it has 3 fields, the columns are 18" in out
    assert terminal.json("import", "usage", "--by", "cluster")["rows"][0]["attempts"] == 2


def test_an_empty_file_is_no_import_and_a_tab_may_be_written_as_people_do(terminal: Terminal) -> None:
    for kind in ("sacct", "swf"):
        assert "the file is empty" in terminal.run("import", kind, terminal.file("nothing.txt", ""), code=FAILED)
    jobs = terminal.file("jobs.tsv", "id\tcame\ttook\tn\n7\t2026-01-01\t3600\t2\n")
    fields = ["--map", "job=id,submit=came,duration=took,gpus=n"]
    for tab in ("\\t", "tab", "\t"):
        assert terminal.json("import", "csv", jobs, *fields, "--delimiter", tab, "--dry-run")["attempts"] == 1


def test_a_dry_run_shows_the_first_rows_and_keeps_nothing(terminal: Terminal) -> None:
    path = terminal.file("jobs.csv", "id,at,secs,n\na,1509148800,60,2\nb,1509148800,x,2\n")
    arguments = ("import", "csv", path, "--map", "job=id,submit=at,duration=secs,gpus=n", "--dry-run")
    out = terminal.run(*arguments, code=FAILED)

    assert "the first attempts, as understood" in out
    assert "3  duration is 'x'" in out
    assert "dry run: nothing is kept" in out
    assert not (terminal.folder / "installation" / "imported.duckdb").exists()
    assert terminal.json(*arguments, code=FAILED)["first"][0]["end_ms"] == 1_509_148_860_000


def test_a_log_of_processors_becomes_jobs_to_play(terminal: Terminal) -> None:
    job = "1 0 60 600 8 -1 -1 8 3600 -1 1 95 3 12 4 -1 -1 -1"
    path = terminal.file("site.v1.swf", f"; UnixStartTime: 1509148800\n; Queue: 4 low\n; MaxRecords: 1\n{job}\n")
    trace = terminal.folder / "jobs.csv"
    told = terminal.json("import", "swf", path, "--as-gpus", "--jobs", str(trace), "--budget-by", "queue")

    assert (told["jobs"], told["stated"], told["totals"][0]["cluster"]) == (1, {"MaxRecords": 1}, "site.v1")
    assert trace.read_text() == "job_id,submit_ms,duration_ms,gpus,budget\n1,1509148800000,600000,8,low\n"
    assert (
        terminal.json("import", "swf", path, "--jobs", str(trace), "--history", str(terminal.folder / "b.duckdb"))[
            "jobs"
        ]
        == 0
    )


def test_free_questions_go_to_the_sandbox(terminal: Terminal) -> None:
    terminal.run("import", "sacct", terminal.file("dump.txt", dumped(GOOD)))
    history = str(terminal.folder / "installation" / "imported.duckdb")
    rows = terminal.json(
        "sql", "select job, gpu_us::bigint as gpu_us from mart.imported_attempt order by job", "--history", history
    )["rows"]

    assert rows == [{"job": "7", "gpu_us": 8 * 3_600_000_000}, {"job": "8", "gpu_us": 16 * 3_600_000_000}]
    terminal.run("sql", "delete from fact.imported_job", "--history", history, code=USAGE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sacct", "gone.txt"], "gone.txt"),
        (["swf", "gone.swf"], "gone.swf"),
        (["sacct", "{dump}", "--zone", "Mars"], "no time zone"),
        (["sacct", "{dump}", "--separator", "||"], "not one character"),
        (["csv", "{dump}", "--map", "job"], "--map"),
        (["csv", "{dump}", "--map", "job=x,submit=y"], "no column x, y"),
        (["sacct", "{dump}", "--jobs", "/nowhere/at/all.csv"], "--jobs"),
        (["sacct", "{csv}"], "dump with `sacct -P`"),
        (["usage", "--by", "mood"], "cannot be split by mood"),
        (["budgets", "gone.xml"], "gone.xml"),
        (["budgets", "{csv}"], "no share tree"),
        (["budgets", "{tree}", "--apply", "--dry-run"], "--apply and --dry-run"),
    ],
)
def test_what_cannot_be_done_is_said_with_2(terminal: Terminal, arguments: list[str], words: str) -> None:
    given = {
        "dump": terminal.file("dump.txt", dumped(GOOD)),
        "csv": terminal.file("a.csv", "a,b\n1,2\n"),
        "tree": terminal.file("t.xml", TREE),
    }
    terminal.run("import", *[argument.format(**given) for argument in arguments], code=USAGE)

    assert words in terminal.err
    assert "Traceback" not in terminal.err


def test_a_tree_is_shown_with_the_commands_that_make_it(terminal: Terminal) -> None:
    path = terminal.file("fair-scheduler.xml", TREE)
    document = terminal.json("import", "budgets", path, "--under", "lab", "--pool", "h100")

    assert [(row["budget"], row["share_ppm"], row["line"]) for row in document["budgets"]] == [
        ("lab/a", 750_000, 1),
        ("lab/b", 250_000, 1),
    ]
    assert document["commands"][0] == "apportion budget set lab/a --share 750000ppm --pool h100"
    assert document["applied"] == 0
    assert "nothing was published" in terminal.run("import", "budgets", path, "--from", "yarn")
    marked = terminal.file("marked.xml", "\ufeff" + TREE)
    assert terminal.json("import", "budgets", marked, "--under", "lab", "--pool", "h100")["budgets"] == document["budgets"]


def test_a_broken_tree_is_named_with_its_line(terminal: Terminal) -> None:
    path = terminal.file("fair-scheduler.xml", "<allocations>\n<queue name='a'>\n</allocations>")
    terminal.run("import", "budgets", path, "--json", code=USAGE)

    assert json.loads(terminal.err)["error"]["line"] == 3
