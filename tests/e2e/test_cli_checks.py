"""The checks a user can make: every decision derived again, the audit, the doctor, and a second ``up``."""

from __future__ import annotations

import re

from tests.e2e.user import User


def test_everything_that_was_decided_is_derived_again_and_adds_up(worked: User) -> None:
    user = worked
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


def test_doctor_is_content(user: User) -> None:
    found = {row["check"]: row["state"] for row in user.run("doctor --json").json["checks"]}

    assert {name: found[name] for name in ("server", "EVENTS", "DECISIONS", "projector", "clock")} == dict.fromkeys(
        ("server", "EVENTS", "DECISIONS", "projector", "clock"), "ok"
    )


def test_a_second_up_is_refused_and_says_who_runs(user: User) -> None:
    done = user.run("up --gpus 1", code=1)

    assert "already runs" in done.err
    assert re.search(r"pid \d+", done.err)
