"""Slurm's share tree as `sacctmgr dump CLUSTER` writes it: Cluster, Parent, Account and User lines.

Decides what of it is budgets: accounts are, with ``Fairshare`` as the weight among all siblings, users beside them included;
users are members who may charge. Where an account has users alone they share it by their weights; ``Fairshare=parent`` means
they do not share at all. Limits (GrpTRES and its kin), QOS and preemption are notes. A pure function of the text.

A line is ``Kind - 'name'`` and then ``:Option=value`` or ``:Option='value'`` any number of times.
"""

from __future__ import annotations

import re
from decimal import Decimal

from apportion.adapters.imports.budgets.tree import BadTree, Branch, Member, Tree, number

_LINE = re.compile(r"^(Cluster|Parent|Account|User)\s*-\s*'([^']*)'((?::[A-Za-z]+=(?:'[^']*'|[^:']*))*)\s*$")
_OPTION = re.compile(r":([A-Za-z]+)=(?:'([^']*)'|([^:']*))")
_SAID = frozenset(("fairshare", "share", "description", "organization", "defaultaccount", "adminlevel"))
DEFAULT_WEIGHT = Decimal(1)


def is_dump(text: str) -> bool:
    """Tell whether the text is such a dump."""
    return re.search(r"(?m)^(Cluster|Parent|Account|User)\s*-\s*'", text) is not None


class _Accounts:
    """The accounts read so far, by name, and the parent in force."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.by_name: dict[str, Branch] = {"root": tree.root}
        self.above: Branch | None = None


def parse(text: str) -> Tree:
    """Return the tree. Raises ``BadTree`` with the line."""
    tree = Tree("slurm")
    accounts = _Accounts(tree)
    for line, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.match(stripped)
        if found is None:
            raise BadTree(
                line, f"{stripped[:60]!r} is no line of a sacctmgr dump, such as Account - 'physics':Fairshare=10"
            )
        kind, name = found[1], found[2]
        options = {
            option[1]: option[2] if option[2] is not None else option[3] for option in _OPTION.finditer(found[3])
        }
        if not name:
            raise BadTree(line, f"the {kind.lower()} has no name")
        _take(accounts, kind, name, options, line)
    for account in accounts.by_name.values():
        _share_users(tree, account)
    return tree


def _take(accounts: _Accounts, kind: str, name: str, options: dict[str, str], line: int) -> None:
    tree = accounts.tree
    _note_limits(tree, f"{kind.lower()} {name}", options, line)
    if kind == "Cluster":
        if accounts.above is not None or tree.root.line:
            raise BadTree(line, f"a second cluster, {name}; import one dump at a time")
        tree.root.line = line
    elif kind == "Parent":
        if name not in accounts.by_name:
            raise BadTree(line, f"account {name} is a parent before it is there; its own line must come first")
        accounts.above = accounts.by_name[name]
    elif accounts.above is None:
        raise BadTree(line, f"{kind.lower()} {name} stands below no Parent line")
    elif kind == "Account":
        if name in accounts.by_name:
            raise BadTree(line, f"account {name} is there twice, also from line {accounts.by_name[name].line}")
        weight, _ = _weight(options, line)
        branch = Branch(name, line, weight)
        accounts.above.children.append(branch)
        accounts.by_name[name] = branch
    else:
        weight, of_parent = _weight(options, line)
        if of_parent:
            accounts.above.users = "none"
        accounts.above.members.append(Member(name, "charge", weight, line))


def _weight(options: dict[str, str], line: int) -> tuple[Decimal, bool]:
    """Return the weight, and whether it is the word ``parent``."""
    text = next((value for name, value in options.items() if name.lower() in ("fairshare", "share")), "")
    if not text:
        return DEFAULT_WEIGHT, False
    if text.lower() == "parent":
        return DEFAULT_WEIGHT, True
    return number(text, "Fairshare", line), False


def _share_users(tree: Tree, account: Branch) -> None:
    """Decide how the users of an account share it, and what their weight takes from accounts beside them."""
    is_root = account is tree.root
    if account.children and account.users != "none":
        account.beside = sum((member.weight for member in account.members), Decimal(0))
    for member in account.members:
        if is_root:
            tree.note(
                member.line,
                f"user {member.name} is directly below the root with weight {member.weight}: no budget stands for that share",
            )
        elif account.children and account.users != "none":
            tree.note(
                member.line,
                f"user {member.name} shares {account.name} with the accounts below it: his weight {member.weight} stays there",
            )
    if is_root:
        account.members, account.users = [], None
    elif account.children:
        account.users = None
    elif account.members and account.users is None:
        account.users = "equal" if len({member.weight for member in account.members}) == 1 else "weighted"


def _note_limits(tree: Tree, whose: str, options: dict[str, str], line: int) -> None:
    for option, value in options.items():
        if option.lower() in _SAID or not value:
            continue
        if option.lower() == "grptresmins" and "gres/gpu=" in value:
            tree.note(
                line,
                f"{whose}: GrpTRESMins={value} caps decayed use; GPU time of a period is `budget grant` or `budget plan`",
            )
        elif option.lower() in ("qos", "defaultqos"):
            tree.note(
                line, f"{whose}: {option} {value}: what may be preempted follows from who is funded, not from a class"
            )
        else:
            tree.note(line, f"{whose}: {option}={value} limits what runs at once; budgets limit no such thing")
