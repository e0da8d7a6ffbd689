"""What an operator does with a node: cordon, drain by a time, drain with force, and give back; real processes all the while."""

from __future__ import annotations

import re
from typing import Any

from tests.e2e.user import User


def test_a_cordoned_node_takes_nothing_and_tells_what_still_runs(user: User) -> None:
    user.run("submit --budget lab/robotics --name goes-on --min-runtime 1h -- sleep 1000")
    user.until("running", lambda: user.state("goes-on") == "running")

    cordoned = user.run("node cordon n1 --reason", "look at the fan")

    assert re.search(r"goes-on-\w+ run 1, 1 GPU, protected until", cordoned.out)
    listed = user.run("node list").out
    assert "cordoned" in listed
    assert "look at the fan" in listed
    user.run("node uncordon n1")
    user.run("cancel goes-on")
    user.until("over", lambda: user.state("goes-on") == "cancelled")


def test_a_node_is_drained_by_a_time_and_with_force_at_once(user: User) -> None:
    """Nobody is telephoned: the plan before, the progress meanwhile, and who was stopped goes on when the node is back."""
    user.run("submit --budget lab/robotics --name stays --min-runtime 1h -- sleep 1000")
    user.until("running", lambda: user.state("stays") == "running")
    seq = user.run("events tail -n 1 --json").json["rows"][-1]["seq"]

    planned = user.run("node drain n1 --by 30m --dry-run --json").json
    forced = user.run("node drain n1 --by 30m --force --dry-run", columns=300)

    assert [(row["becomes"], row["asked_ms"], row["gone_ms"]) for row in planned["plan"]] == [("waited for", None, None)]
    assert planned["empty_ms"] is None
    assert re.search(r"stays-\w+ run 1, 1 GPU: stopped: asked to go by .* although it is funded or protected", forced.out)
    assert "expected to be empty by" in forced.out
    drains = [row for row in user.run("events tail -n 100 --json").json["rows"] if row["type"] == "node.drained"]
    assert all(row["seq"] < seq for row in drains), "a dry run publishes nothing"

    drained = user.run("node drain n1 --by 30m --reason", "new fan", columns=300)

    assert re.search(r"stays-\w+ run 1, 1 GPU: waited for: funded, it states no end", drained.out)
    listed = user.run("node list", columns=300)
    assert "draining" in listed.out
    assert "new fan" in listed.out
    assert "being drained" in user.run("submit --budget lab/llm/eval --name later -- true", columns=300).out
    user.run("submit --budget lab/llm/eval --name quick --expected-runtime 10m -- true")
    user.until("over in time", lambda: user.state("quick") == "succeeded")
    assert user.state("later") == "pending"
    shown = user.run("node show n1")
    assert "drained by" in shown.out
    assert "waited for" in shown.out

    stopping = user.run("node drain n1 --force --reason", "the fan burns", columns=300)

    assert "has until" in stopping.out or "nothing runs on n1" in stopping.out
    node = user.until("empty", lambda: _node(user) if not _node(user)["runs"] else None)
    assert (node["state"], node["reason"], node["drain_force"]) == ("drained", "the fan burns", True)
    told = user.run("job stays --json").json
    assert told["workload"]["state"] == "pending"
    assert [run["outcome"] for run in told["runs"]] == ["drained"]
    user.run("node uncordon n1")
    user.until("over", lambda: user.state("later") == "succeeded")
    user.until("again", lambda: user.state("stays") == "running")
    user.run("cancel stays")
    assert user.run("audit --json").json["failed"] == 0
    assert user.run("verify --json").json["ok"]


def _node(user: User) -> Any:
    return user.run("node show n1 --json").json["node"]
