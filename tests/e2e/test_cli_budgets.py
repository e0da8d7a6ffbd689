"""A manager's budgets and members, as a user: set, granted, planned, spent, accounted for, and refused with the reason."""

from __future__ import annotations

import csv
import io
import re

from tests.e2e.user import User


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
    poor = user.run("budget withdraw lab/new --gpu-hours 99", code=1)
    assert "does not have that much left: 1.5 GPU-h left" in poor.err
    assert "accepted" in user.run("budget withdraw lab/new --gpu-hours 0.5 --reason much").out
    user.run("budget close lab/new")
    assert "closed" in user.run("submit --budget lab/new -- true", code=1).err
    assert "no job 'nothing'" in user.run("why nothing", code=2).err
    assert "no node 'n9'" in user.run("node cordon n9", code=2).err
    longer = user.run("submit --budget lab/llm/olmo --min-runtime 40d -- true", code=1)
    assert "above the pool's cap of 1d" in longer.err


def test_detached_writes_return_with_the_sequence(user: User) -> None:
    done = user.run("member grant lab/llm carol --detach --json").json

    assert done["decided"] is False
    assert done["event_seq"] > 0
    shown = user.run(f"events show {done['event_seq']} --json").json
    assert shown["body"]["data"]["member"] == "carol"
