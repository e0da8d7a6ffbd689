"""YARN's `fair-scheduler.xml`, and the `<pool>` files of the first MapReduce: weighted queues within queues.

Decides what of it is budgets: queues and pools are, with ``weight`` (1 unless stated) among their siblings; a queue named root is
the root itself. Users in ``aclSubmitApps`` and ``aclAdministerApps`` are members; groups, resources, caps, timeouts, policies and
placement rules are notes. A pure function of the text.

The rules are those of the Hadoop documentation, "Fair Scheduler, Allocation file format": `<queue>` and `<pool>` mean the same,
a queue's name has no dot, what a queue says twice counts as said last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from xml.parsers import expat

from apportion.adapters.imports.budgets.tree import BadTree, Branch, Member, Role, Tree, number

QUEUES = ("queue", "pool")
MAX_DEPTH = 64
_ACLS: dict[str, Role] = {
    "aclsubmitapps": "charge",
    "acladministerapps": "administer",
    "acladministerjobs": "administer",
    "aclsubmitjob": "charge",
}


@dataclass
class Element:
    """One element with its line."""

    name: str
    line: int
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)


def parse(text: str) -> Tree:
    """Return the tree. Raises ``BadTree`` with the line."""
    root = elements(text)
    if root.name != "allocations":
        raise BadTree(root.line, f"the file begins with <{root.name}>, a fair-scheduler.xml begins with <allocations>")
    tree = Tree("yarn")
    tree.root.line = root.line
    for child in root.children:
        if child.name in QUEUES:
            tree.root.children.append(_queue(tree, child))
        else:
            _note(tree, "", child)
    top = tree.root.children
    if len(top) == 1 and top[0].name == "root":
        top[0].name = ""
        tree.root = top[0]
    elif any(branch.name == "root" for branch in top):
        raise BadTree(
            root.line,
            "there is a queue root and another one beside it; queues belong inside of root, or there is no root",
        )
    if tree.root.members:
        tree.note(
            tree.root.line,
            "who may submit to every queue below root: `apportion member grant` on each top-level budget",
        )
        tree.root.members = []
    if not tree.root.children:
        tree.note(root.line, "no queue is configured: everything runs in root.default, and no budget stands for that")
    return tree


def _queue(tree: Tree, element: Element) -> Branch:
    name = element.attributes.get("name", "").strip()
    if not name:
        raise BadTree(element.line, f"a <{element.name}> without a name")
    if "." in name:
        raise BadTree(
            element.line,
            f"queue {name!r} has a dot in its name, which YARN refuses; write one element inside the other",
        )
    branch = Branch(name, element.line)
    members: dict[str, list[Member]] = {}
    for child in element.children:
        text = child.text.strip()
        if child.name in QUEUES:
            branch.children.append(_queue(tree, child))
        elif child.name == "weight":
            branch.weight = number(text, f"the weight of queue {name}", child.line)
        elif child.name.lower() in _ACLS:
            members[child.name.lower()] = _members(tree, name, child)
        else:
            _note(tree, name, child)
    if element.attributes.get("type", "parent") not in ("parent",):
        tree.note(element.line, f"queue {name}: type {element.attributes['type']!r} is no type of queue")
    branch.members = [member for found in members.values() for member in found]
    return branch


def _members(tree: Tree, queue: str, element: Element) -> list[Member]:
    """Return the users of an access list: ``user1,user2 group1,group2``, ``*`` for everybody."""
    if element.text.strip() == "*":
        tree.note(element.line, f"queue {queue}: {element.name} *: everybody; a budget is charged by its members alone")
        return []
    users, _, groups = element.text.strip("\n\t").partition(" ")
    if groups.strip():
        tree.note(
            element.line,
            f"queue {queue}: {element.name} names groups ({groups.strip()[:80]}); members are people and services",
        )
    role = _ACLS[element.name.lower()]
    return [Member(user.strip(), role, Decimal(1), element.line) for user in users.split(",") if user.strip()]


def _note(tree: Tree, queue: str, element: Element) -> None:
    whose = f"queue {queue}: " if queue else ""
    if element.name == "user":
        whose, what = (
            "",
            f"user {element.attributes.get('name', '')}: " + ", ".join(child.name for child in element.children),
        )
    else:
        what = f"{element.name} {' '.join(element.text.split())[:80]}".strip()
    tree.note(element.line, f"{whose}{what}: {_WHY.get(element.name.lower(), 'budgets have no such setting')}")


_WHY = {
    "minresources": "a share is of time; a floor in memory or cores is none",
    "maxresources": "idle time is lent without a cap",
    "maxrunningapps": "budgets do not count jobs",
    "maxrunningjobs": "budgets do not count jobs",
    "schedulingpolicy": "policy is of a pool: `apportion policy set`",
    "schedulingmode": "policy is of a pool: `apportion policy set`",
    "minsharepreemptiontimeout": "a funded request preempts at once, after protected time",
    "fairsharepreemptiontimeout": "a funded request preempts at once, after protected time",
    "defaultminsharepreemptiontimeout": "a funded request preempts at once, after protected time",
    "queueplacementpolicy": "a job names its budget",
}


def elements(text: str) -> Element:
    """Return the root element, each with its line. Raises ``BadTree`` for broken XML, declarations of types or entities."""
    parser = expat.ParserCreate()
    stack = [Element("", 0, {})]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > MAX_DEPTH:
            raise BadTree(parser.CurrentLineNumber, f"more than {MAX_DEPTH} elements inside each other")
        element = Element(name, parser.CurrentLineNumber, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def data(chars: str) -> None:
        stack[-1].text += chars

    def refuse(*_: object) -> None:
        raise BadTree(
            parser.CurrentLineNumber,
            "the file declares a document type or entities, which a fair-scheduler.xml never needs; remove it",
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda name: stack.pop()
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise BadTree(
            error.lineno,
            f"the XML is broken: {expat.ErrorString(error.code)}",
            "close what was opened, and check with an XML editor",
        ) from None
    return stack[0].children[0]
