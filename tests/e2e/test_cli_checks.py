"""The checks a user can make: every decision derived again, the audit, the doctor, and a second ``up``."""

from __future__ import annotations

import re
import subprocess

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

    state = user.run(f"replay --seq {verified['to_seq']} --json").json
    assert state["digest"] == verified["digest"]
    assert {budget["budget"] for budget in state["budgets"]} >= {"lab", "lab/llm/olmo"}

    made = user.run("snapshot --json").json
    assert user.run(f"verify --from {made['seq']} --json").json["ok"]


def test_a_proof_is_signed_handed_on_and_checked(worked: User) -> None:
    key, file = worked.directory / "key", worked.directory / "proof.json"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    made = worked.run(f"verify --to 20 --out {file} --sign {key} --json").json

    assert (made["ok"], made["first_seq"], made["last_seq"]) == (True, 1, 20)
    checked = worked.run(f"verify --check {file} --key {key}.pub --json").json
    assert (checked["ok"], checked["signer_checked"], checked["document"]["range_sha256"]) == (True, True, made["range_sha256"])
    assert "this log holds exactly that range" in worked.run(f"verify --check {file}").out

    file.write_text(file.read_text().replace('"cycles": ', '"cycles": 1'))
    assert "was changed" in worked.run(f"verify --check {file}", code=1).err
    assert "--sign KEY signs the document" in worked.run(f"verify --sign {key}", code=2).err
    assert "is no sequence and no time" in worked.run("verify --from yesterday", code=2).err
    assert "is outside" in worked.run("verify --to 999999999", code=2).err
    assert "from seq 10 to 5 ends before it begins" in worked.run("verify --from 10 --to 5", code=2).err


def test_a_cycle_is_told_and_the_state_after_it_is_shown_as_it_was(worked: User) -> None:
    last = worked.run("cycle --json").json
    first = worked.run("cycle 1 --json").json

    assert (first["cycle"], first["previous"], first["next"]) == (1, None, 2)
    assert last["derived_again"]["same"]
    assert worked.run(f"cycle --seq {first['seq']} --json").json["cycle"] == 1
    said = worked.run("cycle 1").out
    assert "KNOWN since the beginning" in said
    assert "derived again: the same" in said
    assert "there is no cycle 999,999" in worked.run("cycle 999999", code=2).err
    assert "is not a whole number" in worked.run("cycle soon", code=2).err

    state = worked.run(f"replay --seq {last['seq']} --json").json
    assert (state["digest"], state["last_cycle_seq"]) == (last["after"]["digest"], last["seq"])
    assert {"pools", "budgets", "runs", "waiting", "reservations", "holds", "nodes"} <= state.keys()
    then = worked.run(f"replay --at {last['time_ms']} --only nodes --node n1 --json").json
    assert [row["node"] for row in then["nodes"]] == ["n1"]
    assert "runs" not in then
    assert "made from" in worked.run(f"replay --seq {last['seq']} --only tree --budget lab/llm").out
    assert "there is no budget 'lab/lm'" in worked.run("replay --budget lab/lm", code=2).err
    assert "opened after that" in worked.run("replay --at 1999-01-01", code=2).err


def test_doctor_is_content(user: User) -> None:
    found = {row["check"]: row["state"] for row in user.run("doctor --json").json["checks"]}

    assert {name: found[name] for name in ("server", "EVENTS", "DECISIONS", "projector", "clock")} == dict.fromkeys(
        ("server", "EVENTS", "DECISIONS", "projector", "clock"), "ok"
    )


def test_a_second_up_is_refused_and_says_who_runs(user: User) -> None:
    done = user.run("up --gpus 1", code=1)

    assert "already runs" in done.err
    assert re.search(r"pid \d+", done.err)
