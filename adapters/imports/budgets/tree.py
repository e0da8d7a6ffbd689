"""A share tree as understood: branches with weights, who may charge them, and notes on what budgets cannot say.

Decides shares from weights, and the events that would make the tree. Pure functions of the tree. Branches are in the order of
their file, parents before children, which is the order in which the events must be published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Literal, NamedTuple

from apportion.core.events import BudgetSet, Event, MemberGranted
from apportion.core.units import PPM, apportion

MAX_BRANCHES = 20_000
MAX_DEPTH = 16
MAX_MEMBER_MILLI = 1_000_000
_UNFIT = re.compile(r"[^A-Za-z0-9_\-.]+")
_UNFIT_MEMBER = re.compile(r"[^A-Za-z0-9_\-]+")
Rule = Literal["none", "equal", "weighted"]
Role = Literal["charge", "administer"]
_SCALE = 10**9  # weights may have nine decimals; more are cut


class BadTree(Exception):
    """A file that cannot be understood; the message has the line and what to do."""

    def __init__(self, line: int, what: str, do: str = "") -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.line = line
        self.do = do


class Note(NamedTuple):
    """Something the file says that budgets cannot."""

    line: int
    what: str


class Member(NamedTuple):
    """Somebody who may charge a branch, and his weight among its users."""

    name: str
    role: Role
    weight: Decimal
    line: int


@dataclass
class Branch:
    """One node of the tree. ``weight`` is among its siblings; ``basis`` says what it is a number of."""

    name: str
    line: int
    weight: Decimal = Decimal(1)
    basis: str = "weight"
    children: list[Branch] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    users: Rule | None = None  # how its users share it
    beside: Decimal = Decimal(
        0
    )  # weight at the level below that no budget stands for, such as of users beside accounts


@dataclass
class Tree:
    """What was understood. ``root`` is no budget: its children are."""

    form: str
    root: Branch = field(default_factory=lambda: Branch("", 0))
    notes: list[Note] = field(default_factory=list)

    def note(self, line: int, what: str) -> None:
        """Add a note."""
        self.notes.append(Note(line, what))


class Line(NamedTuple):
    """One budget: its path, the line it comes from, its weight and what that gives of its parent."""

    path: str
    line: int
    weight: Decimal
    basis: str
    share_ppm: int
    members: tuple[Member, ...]
    users: Rule | None


def number(text: str, what: str, line: int) -> Decimal:
    """Return a weight; raises ``BadTree`` for what is none."""
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise BadTree(line, f"{what} is {text.strip()[:40]!r}, not a number") from None
    if not value.is_finite() or value < 0 or value > 10**12:
        raise BadTree(line, f"{what} is {text.strip()[:40]}, not 0 to 10^12")
    return value


def fit(name: str) -> str:
    """Return a name as one part of a budget's path."""
    return _UNFIT.sub("-", name).lstrip("-._")[:64] or "unnamed"


def fit_member(name: str) -> str:
    """Return a name as a principal."""
    return _UNFIT_MEMBER.sub("-", name).lstrip("-_")[:128] or "unnamed"


def lines(tree: Tree, under: str = "") -> list[Line]:
    """Return the budgets, parents first; renamed and unshared ones are noted. Raises ``BadTree`` for doubles and depths."""
    found: list[Line] = []
    seen: dict[str, int] = {}
    _walk(tree, tree.root, under, 0, found, seen)
    return found


def _walk(tree: Tree, above: Branch, path: str, depth: int, found: list[Line], seen: dict[str, int]) -> None:
    if depth > MAX_DEPTH:
        raise BadTree(above.line, f"{above.name} is more than {MAX_DEPTH} levels deep")
    weights = [int(child.weight * _SCALE) for child in above.children]
    beside = int(above.beside * _SCALE)
    if above.children and not sum(weights) + beside:
        tree.note(
            above.line,
            f"everything below {above.name or 'the root'} weighs 0: all get a share of 0 and run on idle time alone",
        )
        shares = [0] * len(weights)
    else:
        shares = apportion(PPM if weights else 0, [*weights, beside])[: len(weights)]
    for child, share_ppm in zip(above.children, shares, strict=True):
        name = fit(child.name)
        if name != child.name:
            tree.note(
                child.line, f"{child.name!r} becomes {name!r}: a budget's name has letters, digits, '-', '_' and '.'"
            )
        full = f"{path}/{name}" if path else name
        if len(full) > 256:
            raise BadTree(child.line, f"the path {full[:60]}... is longer than 256 characters")
        if full in seen:
            raise BadTree(child.line, f"{full} is there already, from line {seen[full]}; a budget has one line")
        if len(found) >= MAX_BRANCHES:
            raise BadTree(child.line, f"more than {MAX_BRANCHES:,} budgets")
        seen[full] = child.line
        found.append(Line(full, child.line, child.weight, child.basis, share_ppm, tuple(child.members), child.users))
        _walk(tree, child, full, depth + 1, found, seen)


def events(budgets: list[Line], pool: str) -> Iterator[Event]:
    """Yield what makes the tree, in order: each budget, then who may charge it."""
    for budget in budgets:
        yield BudgetSet(
            pool=pool,
            budget=budget.path,
            share_ppm=budget.share_ppm,
            users=budget.users,
            reason=f"imported, line {budget.line}",
        )
        for member, milli in _weighed(budget):
            yield MemberGranted(
                budget=budget.path, member=fit_member(member.name), role=member.role,
                weight_milli=milli, reason=f"imported, line {member.line}",
            )  # fmt: skip


def commands(budgets: list[Line], pool: str) -> list[str]:
    """Return the same as commands to type."""
    found = []
    for budget in budgets:
        users = f" --users {budget.users}" if budget.users else ""
        found.append(
            f"apportion budget set {budget.path} --share {budget.share_ppm}ppm{users}{f' --pool {pool}' if pool else ''}"
        )
        for member, milli in _weighed(budget):
            role = " --role administer" if member.role == "administer" else ""
            weight = (
                ""
                if milli == 1_000
                else f" --weight {milli // 1_000}" + (f".{milli % 1_000:03d}".rstrip("0") if milli % 1_000 else "")
            )
            found.append(f"apportion member grant {budget.path} {fit_member(member.name)}{role}{weight}")
    return found


def _weighed(budget: Line) -> list[tuple[Member, int]]:
    """Return the members with their weights in thousandths, at most 1,000: only what they are to each other counts."""
    most = max((member.weight for member in budget.members), default=Decimal(1))
    scale = MAX_MEMBER_MILLI / max(most, Decimal(1_000))
    return [(member, max(1, int(member.weight * scale))) for member in budget.members]
