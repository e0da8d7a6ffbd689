"""KAI's Queue objects, and the Queues of its fair-share simulator: projects below departments.

Decides what of it is budgets: every queue is, below its ``parentQueue``. Among siblings the GPUs guaranteed (``gpu.quota``, parts
allowed) are the weight where any states some, else ``gpu.overQuotaWeight``, 1 unless stated. Limits, priorities, minimal run times,
CPU and memory are notes; a quota of -1 (no bound) is one too, and weighs 0. A pure function of the documents.

The rules are those of the KAI documentation, "Scheduling Queues": quota first, then over-quota by priority and weight.
"""

from __future__ import annotations

from decimal import Decimal

from apportion.adapters.imports.budgets.documents import At, name_of, objects
from apportion.adapters.imports.budgets.tree import BadTree, Branch, Tree, number

GROUP = "scheduling.run.ai"


def is_kai(found: list[At]) -> bool:
    """Tell whether a document is a queue of KAI, or configures its simulator."""
    return any((group == GROUP and kind == "Queue") or "Queues" in at.entries for group, kind, at in objects(found))


class _Queue:
    """A queue as read: its branch, its parent and its quota."""

    def __init__(self, name: str, at: At, parent: At | None, quota: Decimal, weight: Decimal) -> None:
        self.branch = Branch(name, at.line, weight)
        self.parent = parent.text if parent is not None else ""
        self.line = parent.line if parent is not None and parent.text else at.line
        self.quota = quota


def parse(found: list[At], by: str) -> Tree:
    """Return the tree; ``by``: auto, quota or weight. Raises ``BadTree`` with the line."""
    tree = Tree("kai")
    queues: dict[str, _Queue] = {}
    for group, kind, at in objects(found):
        listed = at.get("Queues")
        if group == GROUP and kind == "Queue":
            _add(queues, _object(tree, at))
        elif listed is not None:
            for entry in listed.items:
                _add(queues, _simulated(tree, entry))
        elif kind:
            tree.note(at.line, f"{kind} {at.word('metadata', 'name')} ({group or 'core'}) is no queue")
    if not queues:
        raise BadTree(0, "the file has no Queue of KAI", "export them: kubectl get queues.scheduling.run.ai -o yaml")
    for name, queue in queues.items():
        if queue.parent and queue.parent not in queues:
            raise BadTree(
                queue.line,
                f"queue {name} is below {queue.parent}, which is not in the file",
                "put its queue into the same file",
            )
        seen, above = [name], queue.parent
        while above:
            if above in seen:
                raise BadTree(queue.line, f"queue {name} is below itself: {' below '.join([*seen, above])}")
            seen.append(above)
            above = queues[above].parent
        (queues[queue.parent].branch if queue.parent else tree.root).children.append(queue.branch)
    quotas = {id(queue.branch): queue.quota for queue in queues.values()}
    for branch in [tree.root, *(queue.branch for queue in queues.values())]:
        below = [quotas[id(child)] for child in branch.children]
        if by == "quota" or (by == "auto" and any(below)):
            for child, quota in zip(branch.children, below, strict=True):
                child.weight, child.basis = quota, "GPU quota"
    return tree


def _add(queues: dict[str, _Queue], queue: _Queue) -> None:
    name = queue.branch.name
    if name in queues:
        raise BadTree(queue.branch.line, f"queue {name} is there twice, also from line {queues[name].branch.line}")
    queues[name] = queue


def _object(tree: Tree, at: At) -> _Queue:
    name, spec = name_of(at), at.get("spec") or At(at.line)
    gpu = spec.get("resources", "gpu") or At(at.line)
    quota = _quota(tree, name, gpu.get("quota"))
    weight_at = gpu.get("overQuotaWeight")
    weight = (
        number(weight_at.text, f"overQuotaWeight of queue {name}", weight_at.line)
        if weight_at is not None
        else Decimal(1)
    )
    limit = gpu.get("limit")
    if limit is not None and limit.text not in ("-1", ""):
        tree.note(limit.line, f"queue {name}: limit {limit.text}: idle time is lent without a cap")
    for resource in ("cpu", "memory"):
        held = spec.get("resources", resource)
        stated = [one for one in ("quota", "limit") if held is not None and held.word(one) not in ("", "0", "-1")]
        if held is not None and stated:
            tree.note(held.line, f"queue {name}: {resource} {' and '.join(stated)}: budgets are of GPU time")
    for what, why in _NOTED.items():
        found = spec.get(what)
        if found is not None and found.text:
            tree.note(found.line, f"queue {name}: {what} {found.text}: {why}")
    return _Queue(name, at, spec.get("parentQueue"), quota, weight)


_NOTED = {
    "priority": "budgets have no order among siblings; jobs have priorities",
    "preemptMinRuntime": "a job states its own: submit --min-runtime",
    "reclaimMinRuntime": "a job states its own: submit --min-runtime",
}


def _simulated(tree: Tree, entry: At) -> _Queue:
    name = entry.word("Name")
    if not name:
        raise BadTree(entry.line, "a queue of the simulator has no Name")
    weight_at = entry.get("Weight")
    weight = number(weight_at.text, f"Weight of queue {name}", weight_at.line) if weight_at is not None else Decimal(1)
    priority = entry.get("Priority")
    if priority is not None and priority.text:
        tree.note(priority.line, f"queue {name}: Priority {priority.text}: {_NOTED['priority']}")
    return _Queue(name, entry, entry.get("Parent"), _quota(tree, name, entry.get("DeservedGPUs")), weight)


def _quota(tree: Tree, name: str, at: At | None) -> Decimal:
    if at is None or not at.text:
        return Decimal(0)
    if at.text in ("-1", "-1.0"):
        tree.note(at.line, f"queue {name}: its quota has no bound; a share has one")
        return Decimal(0)
    return number(at.text, f"quota of queue {name}", at.line)
