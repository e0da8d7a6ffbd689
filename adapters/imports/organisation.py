"""Who belongs where: groups or accounts below departments below divisions, for reports by unit.

Reads two CSV files without heading, as Open XDMoD has them: the hierarchy (``id, name, id of the one above or nothing``) and the
members (``group or account, id``). Decides each member's chain of names, widest first, three at most. A pure function of both;
a unit that is not there, or is above itself, is refused with its line.
"""

from __future__ import annotations

import csv
from pathlib import Path

from apportion.adapters.imports.attempt import BadFile
from apportion.adapters.imports.lines import lines_of

LEVELS = 3


def units(hierarchy: Path, members: Path) -> list[tuple[str, str, str, str]]:
    """Return (member, unit1, unit2, unit3). Raises ``BadFile``."""
    above: dict[str, tuple[str, str, int]] = {}
    for number, row in _rows(hierarchy, 3):
        above[row[0]] = (row[1], row[2], number)
    found = []
    for number, row in _rows(members, 2):
        if row[1] not in above:
            raise BadFile(f"{members} line {number}: unit {row[1]!r} of {row[0]!r} is not in {hierarchy.name}")
        chain = _chain(hierarchy, above, row[1])
        found.append((row[0], *(chain + [""] * LEVELS)[:LEVELS]))
    return [(row[0], row[1], row[2], row[3]) for row in found]


def _chain(hierarchy: Path, above: dict[str, tuple[str, str, int]], unit: str) -> list[str]:
    names: list[str] = []
    while unit:
        if unit not in above:
            raise BadFile(f"{hierarchy}: unit {unit!r} is named as the one above another, but is not there")
        name, unit, number = above[unit]
        names.insert(0, name)
        if len(names) > LEVELS:
            raise BadFile(f"{hierarchy} line {number}: more than {LEVELS} units above each other, or a circle")
    return names


def _rows(path: Path, fields: int) -> list[tuple[int, list[str]]]:
    found = []
    for line in lines_of(path):
        if not line.text.strip():
            continue
        try:
            row = next(csv.reader([line.text], strict=True))
        except (csv.Error, StopIteration) as error:
            raise BadFile(f"{path} line {line.number}: {line.broken or error}") from None
        if len(row) != fields or not row[0]:
            raise BadFile(f"{path} line {line.number}: {len(row)} fields, expected {fields}")
        found.append((line.number, row))
    return found
