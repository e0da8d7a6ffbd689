"""Fair Tree's ranking: the rows that Slurm expects of itself, and the rules of its public documentation one by one."""

from __future__ import annotations

import csv
import os
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

from apportion.core.policy.baselines.fair_tree import levels, ranks

SHARED = Path(os.environ.get("APPORTION_SHARED", Path(__file__).parents[3] / "shared"))
GOLDEN = SHARED / "data" / "slurm-golden" / "fair_tree_expected.psv"


class Row(NamedTuple):
    """A line of the golden table."""

    account: str
    user: str
    shares: str
    usage: int
    fairshare: str
    level: str


class Tree:
    """Lines by name, parents first."""

    def __init__(self) -> None:
        self.names: list[str] = [""]
        self.parents = [-1]
        self.shares = [1]
        self.usage = [0]

    def add(self, name: str, parent: str, shares: int, usage: int = 0) -> None:
        """Add a line; usage of lines with children is what their children used."""
        self.names.append(name)
        self.parents.append(self.names.index(parent))
        self.shares.append(shares)
        self.usage.append(usage)

    def ranks(self) -> dict[str, int]:
        """Return the ranks of leaves."""
        found = ranks(0, self.parents, self.shares, self.usage)
        return {name: rank for name, rank in zip(self.names, found, strict=True) if rank >= 0}

    def level(self, name: str) -> tuple[int, Fraction]:
        """Return the level fairshare of a line."""
        return levels(self.parents, self.shares, self.usage)[self.names.index(name)]


def golden() -> list[Row]:
    """Read the golden rows."""
    if not GOLDEN.is_file():
        pytest.skip(f"{GOLDEN} is not here: set APPORTION_SHARED to the folder with the golden data")
    with GOLDEN.open(encoding="utf-8", newline="") as text:
        return [
            Row(r["account"], r["user"], r["raw_shares"], int(r["raw_usage"]), r["fairshare"], r["level_fs"])
            for r in csv.DictReader(text, delimiter="|")
        ]


def as_tree(rows: list[Row]) -> Tree:
    """Return the golden associations as a tree.

    "parent" as shares means: not a level of its own. Such an account's children stand among its parent's; such a user is before
    all of them, which is what no usage means here, and his usage is put on a line without shares beside him.
    """
    tree = Tree()
    home = {"root": ""}
    for row in rows:
        if not row.user and row.account != "root":
            above = home[row.account[:-1] if row.account[:-1] in home else "root"]
            home[row.account] = above if row.shares == "parent" else row.account
            if row.shares != "parent":
                tree.add(row.account, above, int(row.shares))
        elif row.user and row.shares == "parent":
            tree.add(row.user, home[row.account], 1, 0)
            tree.add(f"usage of {row.user}", home[row.account], 0, row.usage)
        elif row.user:
            tree.add(row.user, home[row.account], int(row.shares), row.usage)
    return tree


def test_the_golden_rows_of_slurm_are_reproduced() -> None:
    """All ranks but one, and that one is a tie: 40/170 over 20/110 is 50/170 over 25/110, whatever floats make of it."""
    rows = golden()
    tree = as_tree(rows)
    rank = {name: place for name, place in tree.ranks().items() if not name.startswith("usage of ")}
    users = [row for row in rows if row.user]

    expected = {row.user: row.fairshare for row in users}
    got = {name: f"{sum(1 for other in rank.values() if other >= rank[name]) / len(users):.6f}" for name in rank}

    assert len(users) == len(rank) == 21
    assert {name for name in expected if expected[name] != got[name]} == {"uD2"}
    assert tree.level("uD2") == tree.level("uD3") == tree.level("uDA3")
    assert got["uD2"] == got["uD3"] == expected["uD3"]


def test_the_golden_level_fairshares_are_reproduced() -> None:
    rows = golden()
    tree = as_tree(rows)
    told = [(row.user or row.account, row.level) for row in rows if row.level and row.account[:2] != "aD" ]

    for name, level in told:
        kind, value = tree.level(name)
        shown = {0: "0.000000", 1: f"{float(value):.6f}", 2: "inf"}[kind]
        assert shown == level, name
    assert len(told) >= 25


def test_a_leaf_that_ties_with_a_line_ranks_with_the_highest_below_it() -> None:
    tree = Tree()
    tree.add("alone", "", 10, 10)
    tree.add("group", "", 10)
    tree.add("low", "group", 10, 6)
    tree.add("high", "group", 10, 4)

    assert tree.ranks() == {"alone": 0, "high": 0, "low": 2}


def test_lines_that_tie_are_merged_and_their_children_compared() -> None:
    """Without merging all of one would come before all of the other, by an order that nobody chose."""
    tree = Tree()
    tree.add("one", "", 10)
    tree.add("other", "", 10)
    for name, parent, usage in (("a", "one", 8), ("b", "one", 2), ("c", "other", 7), ("d", "other", 3)):
        tree.add(name, parent, 10, usage)

    assert tree.ranks() == {"b": 0, "d": 1, "c": 2, "a": 3}


def test_below_a_better_line_everything_is_better() -> None:
    tree = Tree()
    tree.add("good", "", 10)
    tree.add("bad", "", 10)
    tree.add("worst of good", "good", 1, 9)
    tree.add("best of bad", "bad", 1, 0)
    tree.add("rest of bad", "bad", 1, 10)

    assert tree.ranks() == {"worst of good": 0, "best of bad": 1, "rest of bad": 2}


def test_3a_12_weight_divides_and_no_weight_comes_last() -> None:
    """Kueue multiplied by the weight instead of dividing, and sorted weight 0 first."""
    tree = Tree()
    tree.add("none", "", 0, 0)
    tree.add("B", "", 1, 10)
    tree.add("A", "", 2, 10)
    tree.add("idle", "", 1, 0)

    assert tree.ranks() == {"idle": 0, "A": 1, "B": 2, "none": 3}
