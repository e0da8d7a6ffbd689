"""A share tree of another scheduler, made in a running cluster, and refused where it does not fit."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.user import User

DUMP = """Cluster - 'hpc':Fairshare=1
Parent - 'root'
Account - 'sci':Fairshare=3
Account - 'eng':Fairshare=1
Parent - 'sci'
User - 'ana':Fairshare=1
User - 'ben':Fairshare=2
"""


def test_a_tree_is_made_below_a_budget_and_refused_where_there_is_no_room(user: User, tmp_path: Path) -> None:
    path = tmp_path / "tree.cfg"
    path.write_text(DUMP, encoding="utf-8")
    refused = user.run(f"import budgets {path} --apply", code=1)
    user.run("budget set lab/guests --share 0%")
    made = user.run(f"import budgets {path} --under lab/guests --apply --json").json
    rows = {row["budget"]: row for row in user.run("budget list --json").json["rows"]}

    assert "made before it: nothing" in refused.err
    assert made["applied"] == 4
    assert (rows["lab/guests/sci"]["share_ppm"], rows["lab/guests/eng"]["share_ppm"]) == (750_000, 250_000)
    members = user.run("budget show lab/guests/sci --json").out
    assert "ana" in members
    assert "ben" in members
