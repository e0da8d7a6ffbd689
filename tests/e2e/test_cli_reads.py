"""Everything that is read, as a user: tables that fit, JSON and CSV, an earlier state, SQL, exports, clean ends."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess

from tests.e2e.user import PATIENCE_S, PROGRAM, User


def test_reads_say_how_fresh_they_are_and_fit_eighty_columns(worked: User) -> None:
    user = worked
    user.run("submit --budget lab/robotics --name shown -- sleep 1000")  # or the queue is empty
    user.until("running", lambda: user.state("shown") == "running")
    for line in ("status", "status --gaps", "queue", "share", "share lab/llm", "usage --by day,budget,user", "budget list",
                 "node list", "budget show lab/llm/olmo", "statement --budget lab", "what-fits", "audit",
                 "events tail"):  # fmt: skip
        done = user.run(line, columns=80)

        assert re.search(r"^as of seq [\d,]+, time \d{4}-\d\d-\d\dT[\d:.]+Z, lag \d+", done.err.splitlines()[-1]), line
        assert max(len(row) for row in done.out.splitlines()) <= 80, line
    user.run("cancel shown")


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


def test_any_named_question_can_be_asked(worked: User) -> None:
    user = worked
    listed = {row["query"]: row["question"] for row in user.run("query --json").json["queries"]}
    assert "by any of day (UTC)" in listed["usage"]
    about = user.run("query statement --about").out
    assert "must be given" in about
    assert "apportion query statement budget=lab/llm pool=h100 from_ms=2026-01-02 to_ms=2026-01-03" in about

    target = user.directory / "usage.parquet"
    done = user.run(f"query usage by=user budget=lab --json --parquet {target}").json
    assert done["question"] == listed["usage"]
    assert target.read_bytes()[:4] == b"PAR1"
    assert {row["user"] for row in done["rows"]} == {"ana"}
    user.run("query waits since=2001-01-01 --csv")

    assert "did you mean usage" in user.run("query usag", code=2).err
    assert "bill needs budget, pool, from_ms, to_ms" in user.run("query bill", code=2).err
    assert "since_ms=soon" in user.run("query waits since=soon", code=2).err
    assert "there is no parameter 'buget'" in user.run("query usage buget=x", code=2).err


def test_an_earlier_state_can_be_asked_for(worked: User) -> None:
    user = worked
    now = user.run("queue --json").json["as_of"]
    then = user.run(f"budget list --seq {now['seq']} --json").json

    assert then["as_of"]["seq"] <= now["seq"]
    assert "nothing had been decided yet" in user.run("queue --at 2001-01-01", code=2).err
    beyond = user.run("queue --seq 999999999", code=4)
    assert "999999999" in beyond.err


def test_usage_adds_up_to_what_the_books_say(worked: User) -> None:
    user = worked
    document = user.run("usage --by budget --json").json
    status = user.run(f"status --seq {document['as_of']['seq']} --json").json["rows"][0]

    assert document["total"]["funded_gpu_us"] > 0
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
    last = user.run("events tail -n 1 --json").json["rows"][-1]["seq"]
    done = user.run(f"events export --out {out} --to {last} --json").json

    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert done["events"] == last
    assert [line["seq"] for line in lines] == list(range(1, last + 1))
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
