"""Kernels that count no references call none that makes an array, unless that one is compiled to do so whoever calls it.

Numba lets a helper take over from its first caller what its decorator does not say. So whether one that makes arrays is refused
depends on who compiles it first: on a machine with older machine code all is well, on a cold one nothing is. Here the calls are
read from the sources.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from tests.built_on import KERNELS

MAKERS = {"empty", "zeros", "ones", "full", "arange", "copy", "empty_like", "zeros_like", "argsort", "sort", "concatenate"}
ABOVE = "apportion.core.kernels"


@dataclass
class Helper:
    """A compiled function: how, whom it calls, whether it makes an array."""

    how: str  # "bare", "making" or "njit"
    makes: bool
    calls: list[tuple[str, str]] = field(default_factory=list)


def decorator_of(node: ast.FunctionDef) -> str:
    """Return "bare", "making", "njit", or "" for what is not compiled."""
    for each in node.decorator_list:
        name = each.func if isinstance(each, ast.Call) else each
        if isinstance(name, ast.Name) and name.id in ("bare", "making", "njit"):
            return name.id
    return ""


def helpers_of(file: str, text: str) -> dict[tuple[str, str], Helper]:
    """Return the compiled functions of a file; ``file`` as in ``BUILT_ON``."""
    tree = ast.parse(text)
    modules, names = dict[str, str](), dict[str, tuple[str, str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ABOVE):
            room = (node.module or "")[len(ABOVE) + 1 :]
            for each in node.names:
                modules[each.asname or each.name] = f"{room}.{each.name}" if room else each.name
                names[each.asname or each.name] = (room, each.name)
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not (how := decorator_of(node)):
            continue
        helper = Helper(how, makes=False)
        for call in (each.func for each in ast.walk(node) if isinstance(each, ast.Call)):
            if isinstance(call, ast.Name):
                helper.calls.append(names.get(call.id, (file, call.id)))
            elif isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id in modules:
                helper.calls.append((modules[call.value.id], call.attr))
            elif isinstance(call, ast.Attribute) and call.attr in MAKERS:
                helper.makes = True
        found[file, node.name] = helper
    return found


def refused(helpers: dict[tuple[str, str], Helper]) -> list[str]:
    """Return the helpers that make arrays and may be compiled first by who counts no references, each with that caller."""
    found = []
    for begin, first in helpers.items():
        if first.how != "bare":
            continue
        seen, ahead = {begin}, [begin]
        while ahead:
            at = ahead.pop()
            if helpers[at].makes:
                found.append(f"{at[0]}.{at[1]} makes an array and is called from {begin[0]}.{begin[1]}: compile it `making`")
            for other in helpers[at].calls:
                if other in helpers and other not in seen and helpers[other].how != "making":
                    seen.add(other)
                    ahead.append(other)
    return found


def in_tree(kernels: Path = KERNELS) -> dict[tuple[str, str], Helper]:
    """Return the compiled functions of all kernels."""
    found = {}
    for path in sorted(kernels.rglob("*.py")):
        found |= helpers_of(".".join(path.relative_to(kernels).with_suffix("").parts), path.read_text(encoding="utf-8"))
    return found


def test_whoever_counts_no_references_calls_nobody_who_makes_arrays() -> None:
    helpers = in_tree()

    assert sum(helper.how == "bare" for helper in helpers.values()) > 50  # they are found
    assert not refused(helpers)


def test_the_rule_sees_a_helper_in_another_file_behind_one_that_makes_nothing() -> None:
    maker = "@njit(cache=True)\ndef sums(rows):\n    return np.zeros(rows)\n"
    middle = f"from {ABOVE}.lines import sums\n@njit(cache=True)\ndef total(rows):\n    return sums(rows)[0]\n"
    caller = f"from {ABOVE} import share as of\n@bare\ndef rate(rows):\n    return of.total(rows)\n"
    helpers = helpers_of("lines", maker) | helpers_of("share", middle) | helpers_of("effects", caller)
    said = helpers | helpers_of("lines", maker.replace("njit(cache=True)", "making"))

    assert [finding.split()[0] for finding in refused(helpers)] == ["lines.sums"]
    assert not refused(said)
