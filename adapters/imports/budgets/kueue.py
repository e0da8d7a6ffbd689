"""Kueue's ClusterQueue and Cohort objects: queues that share within cohorts, cohorts within cohorts.

Decides what of it is budgets: cohorts and cluster queues are; a queue without a cohort stands alone at the top. Among siblings
the GPUs guaranteed (``nominalQuota`` of a resource with "gpu" in its name, of all below a cohort added up) are the weight where any
states them, else ``fairSharing.weight``, 1 unless stated. Quotas of other resources, borrowing and preemption are notes. A pure
function of the documents. Both spellings of the API are read: ``cohortName`` and ``cohort``, ``parentName`` and ``parent``.

The rules are those of the Kueue documentation: "Cluster Queue", "Cohort" (a cohort that nobody declares is there all the same, and
a cohort's own quota is lent to all below it) and "Fair Sharing".
"""

from __future__ import annotations

from decimal import Decimal

from apportion.adapters.imports.budgets.documents import At, name_of, objects
from apportion.adapters.imports.budgets.tree import BadTree, Branch, Tree, number

GROUP = "kueue.x-k8s.io"
_KINDS = ("ClusterQueue", "Cohort")
_LENT = ("borrowingLimit", "lendingLimit")


def is_kueue(found: list[At]) -> bool:
    """Tell whether a document is an object of Kueue."""
    return any(group == GROUP for group, _, _ in objects(found))


def parse(found: list[At], by: str) -> Tree:
    """Return the tree; ``by``: auto, quota or weight. Raises ``BadTree`` with the line."""
    tree = Tree("kueue")
    branches: dict[tuple[str, str], Branch] = {}
    above: dict[tuple[str, str], tuple[str, int]] = {}
    quotas: dict[tuple[str, str], Decimal] = {}
    for group, kind, at in objects(found):
        if group != GROUP or kind not in _KINDS:
            _note_other(tree, group, kind, at)
            continue
        key = (kind, name_of(at))
        if key in branches:
            raise BadTree(at.line, f"{kind} {key[1]} is there twice, also from line {branches[key].line}")
        spec = at.get("spec") or At(at.line)
        branches[key] = Branch(key[1], at.line, _weight(spec))
        quotas[key] = _quota(tree, key, spec)
        parents = ("cohortName", "cohort") if kind == "ClusterQueue" else ("parentName", "parent")
        named = next((spec.get(name) for name in parents if spec.word(name)), None)
        above[key] = (named.text, named.line) if named is not None else ("", at.line)
        _note_spec(tree, key, spec)
    if not branches:
        raise BadTree(
            0,
            "the file has no ClusterQueue and no Cohort of Kueue",
            "export them: kubectl get clusterqueues,cohorts -o yaml",
        )
    _declare(branches, above, quotas)
    _join(tree, branches, above)
    _weigh(tree.root, {id(branch): quotas[key] for key, branch in branches.items()}, by)
    return tree


def _declare(
    branches: dict[tuple[str, str], Branch],
    above: dict[tuple[str, str], tuple[str, int]],
    quotas: dict[tuple[str, str], Decimal],
) -> None:
    """Add the cohorts that are named as a parent and never declared."""
    for name, line in list(above.values()):
        key = ("Cohort", name)
        if name and key not in branches:
            branches[key], above[key], quotas[key] = Branch(name, line), ("", line), Decimal(0)


def _join(tree: Tree, branches: dict[tuple[str, str], Branch], above: dict[tuple[str, str], tuple[str, int]]) -> None:
    for key, branch in branches.items():
        name, line = above[key]
        seen = {key}
        at = ("Cohort", name)
        while at[1]:
            if at in seen:
                raise BadTree(
                    line, f"{key[0]} {key[1]} is below itself: {' below '.join(sorted(one for _, one in seen))}"
                )
            seen.add(at)
            at = ("Cohort", above[at][0])
        (branches["Cohort", name] if name else tree.root).children.append(branch)


def _weigh(above: Branch, quotas: dict[int, Decimal], by: str) -> Decimal:
    """Set the weights below a branch and return its whole quota."""
    below = [_weigh(child, quotas, by) for child in above.children]
    if by == "quota" or (by == "auto" and any(below)):
        for child, quota in zip(above.children, below, strict=True):
            child.weight, child.basis = quota, "GPU quota"
    return quotas.get(id(above), Decimal(0)) + sum(below, Decimal(0))


def _weight(spec: At) -> Decimal:
    at = spec.get("fairSharing", "weight")
    return quantity(at) if at is not None and at.text else Decimal(1)


def _quota(tree: Tree, key: tuple[str, str], spec: At) -> Decimal:
    """Return the GPUs guaranteed; notes other resources and limits on lending."""
    gpus = Decimal(0)
    groups = spec.get("resourceGroups")
    for group in groups.items if groups is not None else ():
        flavors = group.get("flavors")
        for flavor in flavors.items if flavors is not None else ():
            resources = flavor.get("resources")
            for resource in resources.items if resources is not None else ():
                name, nominal = resource.word("name"), resource.get("nominalQuota")
                if "gpu" in name.lower() and nominal is not None:
                    amount = quantity(nominal)
                    gpus += amount
                    if amount > MANY_GPUS:
                        tree.note(
                            nominal.line,
                            f"{key[0]} {key[1]}: {name} {nominal.text} is {amount:,.0f} GPUs; is that meant?",
                        )
                elif nominal is not None:
                    tree.note(
                        resource.line,
                        f"{key[0]} {key[1]}: {name} {nominal.text} of {flavor.word('name')}: budgets are of GPU time",
                    )
                for limit in _LENT:
                    if (at := resource.get(limit)) is not None:
                        tree.note(at.line, f"{key[0]} {key[1]}: {limit} {at.text}: idle time is lent without a limit")
    return gpus


_SUFFIXES = {
    "m": Decimal("0.001"),
    **{letter: Decimal(10 ** (3 * power)) for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}i": Decimal(1_024**power) for power, letter in enumerate("KMGT", 1)},
}
MANY_GPUS = 1_000_000  # a quota above it is a slip, such as 1Gi


def quantity(at: At) -> Decimal:
    """Return a Kubernetes quantity such as ``8``, ``500m`` or ``2k``; raises ``BadTree``."""
    suffix = next((one for one in sorted(_SUFFIXES, key=len, reverse=True) if at.text.endswith(one)), "")
    return number(at.text.removesuffix(suffix), "a quantity", at.line) * _SUFFIXES.get(suffix, Decimal(1))


def _note_spec(tree: Tree, key: tuple[str, str], spec: At) -> None:
    known = {
        "preemption": "who may preempt follows from who is funded",
        "queueingStrategy": "inside a budget the first in line goes first",
        "flavorFungibility": "a job names the pools it accepts: submit --pool A,B",
        "admissionChecks": "there is no admission check",
        "stopPolicy": "`apportion budget close` stops a budget",
    }
    for name, why in known.items():
        if (at := spec.get(name)) is not None and (at.text or at.entries or at.items):
            tree.note(at.line, f"{key[0]} {key[1]}: {name} {at.text}".rstrip() + f": {why}")


def _note_other(tree: Tree, group: str, kind: str, at: At) -> None:
    if kind == "LocalQueue":
        tree.note(
            at.line,
            f"LocalQueue {at.word('metadata', 'name')}: jobs sent there name budget {at.word('spec', 'clusterQueue')} instead",
        )
    elif kind:
        tree.note(at.line, f"{kind} {at.word('metadata', 'name')} ({group or 'core'}) is no queue")
    else:
        tree.note(at.line, "a document without a kind is no queue")
