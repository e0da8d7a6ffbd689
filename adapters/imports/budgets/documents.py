"""YAML documents with the line of every value: mappings, lists and texts, nothing else.

Decides nothing about queues. A pure function of the text: PyYAML composes nodes, and they are taken as they stand, so ``8`` and
``"8"`` are the same text and no tag makes an object. Aliases, double keys and templates are refused with their line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apportion.adapters.imports.budgets.tree import BadTree

if TYPE_CHECKING:
    import yaml

MAX_NODES = 1_000_000
MAX_DEPTH = 64  # levels of lists and maps
_TEMPLATE = re.compile(r"\{\{|\{%|<%")


@dataclass
class At:
    """A value with its line: ``text``, or ``items`` of a list, or ``entries`` of a mapping."""

    line: int
    text: str = ""
    items: list[At] = field(default_factory=list)
    entries: dict[str, At] = field(default_factory=dict)

    def get(self, *path: str) -> At | None:
        """Return the value below these keys, None when one is not there."""
        found: At | None = self
        for key in path:
            found = found.entries.get(key) if found is not None else None
        return found

    def word(self, *path: str) -> str:
        """Return the text below these keys, "" when it is not there, or null."""
        found = self.get(*path)
        return "" if found is None or found.text in ("null", "~") else found.text


def refuse_template(text: str) -> None:
    """Raise ``BadTree`` for a template, whose shares are not known before it is filled in."""
    found = _TEMPLATE.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise BadTree(line, "this is a template, not a configuration", "fill it in first, and import what comes out")


def documents(text: str) -> list[At]:
    """Return the documents of a YAML text. Raises ``BadTree`` with the line."""
    try:
        import yaml
    except ImportError:
        raise BadTree(0, "reading YAML needs PyYAML", "pip install 'apportion[imports]'") from None
    refuse_template(text)
    try:
        _look_over(yaml, text)
        return [_plain(node, yaml.SequenceNode) for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        raise BadTree(line, f"the YAML is broken: {error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadTree(line, f"a character that YAML does not allow: #x{error.character:04x}") from None
    except yaml.YAMLError as error:
        raise BadTree(0, f"the YAML is broken: {str(error).splitlines()[0]}") from None


def _look_over(yaml: Any, text: str) -> None:
    """Refuse what no configuration of queues has, before it costs anything: reading time grows with the square of the depth."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise BadTree(event.start_mark.line + 1, f"nested too deeply: more than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            raise BadTree(event.start_mark.line + 1, f"the alias *{event.anchor}; write out what it stands for")
        if number > MAX_NODES:
            raise BadTree(event.start_mark.line + 1, f"more than {MAX_NODES:,} values")


def _plain(node: yaml.Node, lists: type[yaml.SequenceNode]) -> At:
    line = node.start_mark.line + 1
    if isinstance(node.value, str):
        return At(line, text=node.value)
    if isinstance(node, lists):
        return At(line, items=[_plain(item, lists) for item in node.value])
    at = At(line)
    for key, value in node.value:
        name = key.value if isinstance(key.value, str) else ""
        if name in at.entries:
            raise BadTree(
                key.start_mark.line + 1, f"{name!r} is there twice in one mapping, also in line {at.entries[name].line}"
            )
        at.entries[name] = _plain(value, lists)
    return at


def objects(found: list[At]) -> Iterator[tuple[str, str, At]]:
    """Yield (API group, kind, object) of Kubernetes objects, those inside a ``List`` too."""
    for at in found:
        kind = at.word("kind")
        if kind.endswith("List") and (items := at.get("items")) is not None:
            yield from objects(items.items)
        else:
            yield at.word("apiVersion").partition("/")[0], kind, at


def name_of(at: At) -> str:
    """Return the object's name. Raises ``BadTree``."""
    name = at.word("metadata", "name")
    if not name:
        raise BadTree(at.line, f"the {at.word('kind') or 'object'} has no metadata.name")
    return name
