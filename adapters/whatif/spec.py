"""What a person writes for a what-if: a budgets file, a cluster file, a job in one line.

Pure functions of text. Every error names the file, the line and the value, and says what to write instead.

Budgets file (TOML; shares are of the parent; a table of a pool holds for that pool, the top level for every pool)::

    [shares]
    "itp/cluster04" = "25%"
    "itp/cluster07" = "35%"
    [grants]                      # GPU-hours put in at the beginning of the range
    "itp/cluster09" = 2000
    [pool.h100.shares]
    "itp/cluster08" = "4%"

Cluster file (TOML)::

    leave = ["node063", "node064"]
    [[join]]
    pool = "h100"
    nodes = 8
    gpus = 8
    from = 2026-01-03T00:00:00    # left out: from the beginning

A job: ``budget=itp/cluster04,gpus=64,runs=12h`` and, if wished, ``at=TIME``, ``limit=24h``, ``min-runtime=1h``, ``pool=h100``,
``times=10``, ``kind=training``, ``checkpoint=30m``, ``as=PRINCIPAL``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from apportion.adapters.whatif.change import ChangeRefused, Extra, Joining, Wish
from apportion.core.events import WorkloadSubmitted

if TYPE_CHECKING:
    from apportion.core.engine import Core

Parse = Callable[[str], int]
TIMES_MAX = 10_000  # jobs of one line
NODES_MAX = 10_000


class Units:
    """The product's own readers of durations, shares, instants and GPUs, which the caller brings."""

    def __init__(
        self, duration_ms: Parse, share_ppm: Parse, instant_ms: Parse, gpus_milli: Parse, gpu_hours_us: Parse
    ) -> None:
        self.duration_ms, self.share_ppm, self.instant_ms = duration_ms, share_ppm, instant_ms
        self.gpus_milli, self.gpu_hours_us = gpus_milli, gpu_hours_us


def _table(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ChangeRefused(
            f"{name}: {error}", "see `apportion what-if --help` for an example of such a file"
        ) from None


def _within(found: dict[str, Any], key: str, where: str, text: str, example: str) -> dict[str, Any]:
    """Return the table under a key, an empty one where there is none."""
    table = found.get(key, {})
    if not isinstance(table, dict):
        raise ChangeRefused(f"{_place(where, text, key)}: {key} = {table!r} is no table", example)
    return table


def _place(where: str, text: str, key: str) -> str:
    """Return where in a file a key is set."""
    line = _line_of(text, key)
    return f"{where}, line {line}" if line else where


def _line_of(text: str, key: str) -> int:
    """Return the line in which a key is set, 0 when it is not found as it is written."""
    wanted = re.compile(rf"""^\s*["']?{re.escape(key)}["']?\s*=""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if wanted.match(line)), 0)


def _only(found: dict[str, Any], known: tuple[str, ...], where: str, text: str, example: str) -> None:
    for key in found:
        if key not in known:
            line = _line_of(text, key) or next(
                (n for n, row in enumerate(text.splitlines(), 1) if row.startswith(f"[{key}")), 0
            )
            place = f"{where}, line {line}" if line else where
            raise ChangeRefused(f"{place}: there is no {key!r}; it has {', '.join(known)}", example)


def budgets(text: str, name: str, core: Core, units: Units) -> list[Wish]:
    """Return the lines of a budgets file; a path of the top level counts in every pool that has it."""
    found = _table(text, name)
    _only(found, ("shares", "grants", "pool"), name, text, 'write [shares] and below it "lab/llm" = "40%"')
    pools = list(core.state.pool.row_of)
    wishes: list[Wish] = []
    below = 'write [pool.NAME.shares] and below it "lab/llm" = "40%"'
    for pool in _within(found, "pool", name, text, below):
        if pool not in pools:
            raise ChangeRefused(f"{name}: there is no pool {pool!r}", f"pools are {', '.join(pools)}")
        table = _within(found["pool"], pool, name, text, below)
        _only(
            table,
            ("shares", "grants"),
            f"{name}, [pool.{pool}]",
            text,
            below,
        )
        wishes += _wishes(table, [pool], text, name, core, units)
    said = {(wish.pool, wish.budget) for wish in wishes}
    top = _wishes({key: found[key] for key in ("shares", "grants") if key in found}, pools, text, name, core, units)
    wishes += [wish for wish in top if (wish.pool, wish.budget) not in said]
    if not wishes:
        raise ChangeRefused(f"{name} changes nothing", 'write [shares] and below it "lab/llm" = "40%"')
    return wishes


def _wishes(table: dict[str, Any], pools: list[str], text: str, name: str, core: Core, units: Units) -> list[Wish]:
    example = 'write [shares] and below it "lab/llm" = "40%"'
    shares, grants = (_within(table, key, name, text, example) for key in ("shares", "grants"))
    wishes: list[Wish] = []
    for path in {**shares, **grants}:
        line, place = _line_of(text, path), _place(name, text, path)
        try:
            share_ppm = units.share_ppm(str(shares[path])) if path in shares else -1
            grant = units.gpu_hours_us(str(grants[path])) if path in grants else 0
        except ValueError as error:
            raise ChangeRefused(f"{place}: {path}: {error}") from None
        known = [pool for pool in pools if core.state.budget_key(pool, path) in core.state.budget.row_of]
        wishes += [Wish(pool, path, share_ppm, grant, line) for pool in known or pools[:1]]
    return wishes


def cluster(text: str, name: str, units: Units) -> tuple[list[Joining], list[str]]:
    """Return the nodes that join and those that leave."""
    found = _table(text, name)
    example = 'write leave = ["node063"] or [[join]] with pool, nodes and gpus'
    _only(found, ("join", "leave"), name, text, example)
    leaving = found.get("leave", [])
    if not isinstance(leaving, list) or not all(isinstance(node, str) for node in leaving):
        raise ChangeRefused(f"{_place(name, text, 'leave')}: leave = {leaving!r} is no list of node names", example)
    joining: list[Joining] = []
    groups = found.get("join", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ChangeRefused(f"{_place(name, text, 'join')}: join = {groups!r} is no list of tables", example)
    for number, group in enumerate(groups, 1):
        where = f"{name}, [[join]] {number}"
        _only(group, ("pool", "nodes", "gpus", "from"), where, text, example)
        for key in ("pool", "nodes", "gpus"):
            if key not in group:
                raise ChangeRefused(f"{where}: {key} is missing", example)
        for key, most in (("nodes", NODES_MAX), ("gpus", 72)):
            if not isinstance(group[key], int) or isinstance(group[key], bool) or not 1 <= group[key] <= most:
                raise ChangeRefused(
                    f"{where}: {key} = {group[key]!r} is not a whole number from 1 to {most:,}", example
                )
        joining.append(
            Joining(str(group["pool"]), group["nodes"], group["gpus"], _instant(group.get("from"), units, where))
        )
    if not joining and not leaving:
        raise ChangeRefused(f"{name} changes nothing", example)
    return joining, leaving


def _instant(value: Any, units: Units, where: str) -> int:
    if value is None:
        return 0
    if isinstance(value, datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return units.instant_ms(zoned.isoformat())
    try:
        return units.instant_ms(value.isoformat() if isinstance(value, date) else str(value))
    except ValueError as error:
        raise ChangeRefused(f"{where}: from: {error}") from None


_JOB = (
    "budget",
    "gpus",
    "runs",
    "at",
    "limit",
    "min-runtime",
    "pool",
    "times",
    "kind",
    "checkpoint",
    "nodes",
    "priority",
    "as",
)


def _whole(fields: dict[str, str], name: str, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number of a job's line: ``least``, or else 0, where it is not given."""
    text = fields.get(name, str(least or 0))
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{name}={text} is no whole number") from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name}={text} is outside {least:,} to {most:,}")
    return number


def job(text: str, number: int, core: Core, units: Units) -> list[Extra]:
    """Return the job, or jobs, of one line."""
    example = "budget=lab/llm,gpus=64,runs=12h"
    fields: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals or key not in _JOB:
            raise ChangeRefused(
                f"--submit {text!r}: {part.strip()!r} is no part of a job; parts are {', '.join(_JOB)}", example
            )
        fields[key] = value
    for key in ("budget", "gpus", "runs"):
        if key not in fields:
            raise ChangeRefused(f"--submit {text!r}: {key}= is missing", example)
    pool = fields.get("pool") or next(
        (
            pool
            for pool in core.state.pool.row_of
            if core.state.budget_key(pool, fields["budget"]) in core.state.budget.row_of
        ),
        "",
    )
    if not pool:
        raise ChangeRefused(
            f"--submit {text!r}: no pool has a budget {fields['budget']!r}", "`apportion budget list` shows them"
        )
    try:
        times = _whole(fields, "times", 1, TIMES_MAX)
        values: dict[str, Any] = {
            "budget": fields["budget"], "pools": (pool,), "gpus_milli": units.gpus_milli(fields["gpus"]),
            "expected_runtime_ms": units.duration_ms(fields.get("limit", "0")), "kind": fields.get("kind", "training"),
            "min_runtime_ms": units.duration_ms(fields["min-runtime"]) if "min-runtime" in fields else None,
            "checkpoint_interval_ms": units.duration_ms(fields.get("checkpoint", "0")),
            "nodes": _whole(fields, "nodes", 0, NODES_MAX), "priority": _whole(fields, "priority"),
        }  # fmt: skip
        at_ms = units.instant_ms(fields["at"]) if "at" in fields else 0
        runs_ms = units.duration_ms(fields["runs"])
        names = [f"what-if-{number}" if times == 1 else f"what-if-{number}-{each}" for each in range(1, times + 1)]
        events = [msgspec.convert({"workload": name, **values}, WorkloadSubmitted) for name in names]
    except (ValueError, msgspec.ValidationError) as error:
        raise ChangeRefused(f"--submit {text!r}: {error}", example) from None
    return [Extra(event, fields.get("as", ""), at_ms, runs_ms) for event in events]
