"""How values look to a person, and how rows become a table, JSON or CSV.

Pure functions of the values (``write_*`` also write to the stream they are given). Stored values are integers with
their unit in the name; only a table turns them into GPU-hours, percent and clock times. JSON and CSV keep the integers,
so nothing is rounded on the way to a script. Columns of GPU-hours that stand above their total add up exactly
(largest remainder). It must never read the wall clock, and never pass a control character on to a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from apportion.core.units import GPU_US_PER_GPU_HOUR, PPM, apportion

Row = Mapping[str, Any]

# Names ending in _ms are instants unless they are listed here (durations).
DURATION_NAMES = frozenset(
    {
        "age_ms", "backoff_ms", "cap_ms", "checkpoint_interval_ms", "duration_ms", "expected_runtime_ms", "grace_ms",
        "funded_wait_ms", "held_ms", "horizon_ms", "idle_hold_ms", "left_ms", "lag_ms", "min_runtime_ms", "progress_ms",
        "quantum_ms", "ran_ms", "review_ms", "run_ms", "waited_ms", "wait_ms", "wait_p50_ms", "wait_p90_ms", "wait_p99_ms",
        "p50_ms", "p90_ms", "p99_ms", "heartbeat_timeout_ms", "start_timeout_ms", "protected_cap_ms", "resume_from_ms",
        "bank_ms", "beneficiary_waited_ms", "half_life_ms", "idle_ms", "limit_ms", "shortest_ms", "step_ms", "wait_bound_ms",
        "hold_ms", "startup_ms",
    }
)  # fmt: skip
# GPU-hours that are not parts of a sum: each is rounded by itself.
RUNNING_NAMES = frozenset({"balance_gpu_us"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def gpu_hours(gpu_us: int) -> str:
    """Return GPU-microseconds as GPU-hours with one decimal, rounded half away from zero, in integers only."""
    return _tenths(_round_tenths(gpu_us))


def gpu_hours_column(values: Sequence[int]) -> list[str]:
    """Return a column of GPU-hours whose shown tenths add up to the shown tenths of its exact total."""
    if any(value < 0 for value in values):
        return [gpu_hours(value) for value in values]
    parts = apportion(_round_tenths(sum(values)), values)
    return [_tenths(part) for part in parts]


def _round_tenths(gpu_us: int) -> int:
    sign = -1 if gpu_us < 0 else 1
    return sign * ((abs(gpu_us) * 10 + GPU_US_PER_GPU_HOUR // 2) // GPU_US_PER_GPU_HOUR)


def _tenths(tenths: int) -> str:
    sign = "-" if tenths < 0 else ""
    return f"{sign}{abs(tenths) // 10:,}.{abs(tenths) % 10}"


def gpus(milli: int) -> str:
    """Return thousandths of a GPU as ``1 GPU``, ``8 GPUs``, ``0.5 GPU``."""
    return f"{gpu_count(milli)} GPU{'' if 0 < milli <= 1000 else 's'}"


def gpu_count(milli: int) -> str:
    """Return thousandths of a GPU as a plain number: ``8``, ``0.5``."""
    whole, rest = divmod(abs(milli), 1000)
    text = f"{whole:,}" + (f".{rest:03d}".rstrip("0") if rest else "")
    return ("-" if milli < 0 else "") + text


def many(count: int, one: str, more: str = "") -> str:
    """Return a count with the words that go with it: ``1 node``, ``1,024 nodes``; ``more`` where an s does not make the plural."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def gpu_time(gpu_us: int) -> str:
    """Return GPU time in a sentence: GPU-hours, or GPU-seconds where hours would round to nothing."""
    if 0 < abs(gpu_us) < GPU_US_PER_GPU_HOUR // 10:
        tenths = (abs(gpu_us) + 50_000) // 100_000
        return f"{'-' if gpu_us < 0 else ''}{tenths // 10}.{tenths % 10} GPU-s"
    return f"{gpu_hours(gpu_us)} GPU-h"


def gpu_seconds(gpu_us: int) -> str:
    """Return GPU-microseconds as GPU-seconds, exact: ``12,000``, ``-7,440.000001``."""
    whole, rest = divmod(abs(gpu_us), 1_000_000)
    text = f"{whole:,}" + (f".{rest:06d}".rstrip("0") if rest else "")
    return ("-" if gpu_us < 0 else "") + text


def percent(ppm: int) -> str:
    """Return parts per million as percent with one decimal, in integers only."""
    tenths = (abs(ppm) * 1000 + PPM // 2) // PPM
    return f"{'-' if ppm < 0 else ''}{tenths // 10}.{tenths % 10} %"


def when(time_ms: int) -> str:
    """Return an instant as ``2026-01-02 03:04:05Z``, cut to the second; ``-`` for 0."""
    if time_ms <= 0:
        return "-"
    return f"{_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%d %H:%M:%S}Z"


def iso(time_ms: int) -> str:
    """Return an instant as ISO 8601 in UTC with milliseconds, for JSON and the freshness line."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def duration(ms: int) -> str:
    """Return a duration in its two largest units: ``1d 3h``, ``2h 5m``, ``10m``, ``3.2s``, ``0s``."""
    if ms < 0:
        return "-" + duration(-ms)
    if ms < 1_000 and ms % 100:
        return f"{ms}ms"
    if ms < 60_000:
        tenths = (ms % 1000) // 100
        return f"{ms // 1000}.{tenths}s" if tenths else f"{ms // 1000}s"
    seconds = ms // 1000
    units = [
        (seconds // 86_400, "d"),
        (seconds % 86_400 // 3600, "h"),
        (seconds % 3600 // 60, "m"),
        (seconds % 60, "s"),
    ]
    first = next(position for position, (count, _unit) in enumerate(units) if count)
    return " ".join(f"{count}{unit}" for count, unit in units[first : first + 2] if count)


def clean(text: str) -> str:
    """Return ``text`` without control characters: names come from events, and a terminal would obey them."""
    return "".join(
        char if unicodedata.category(char) not in ("Cc", "Cf", "Cs") else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def clean_lines(text: str) -> str:
    """Return ``text`` without control characters other than line ends and tabs."""
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.split("\n"))


def cell(name: str, value: Any) -> str:
    """Return one value as a table shows it, by the unit in its name."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.endswith("gpu_us"):
            return gpu_hours(value)
        if name.endswith("_ppm"):
            return percent(value)
        if name.endswith("_milli"):
            return gpu_count(value)
        if name.endswith("_ms"):
            return duration(value) if name in DURATION_NAMES else when(value)
        if name in ("seq", "pid", "run") or name.endswith("_seq"):
            return str(value)
        return f"{value:,}"
    if isinstance(value, (dict, list, tuple)):
        return clean(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    return clean(str(value))


def heading(name: str) -> str:
    """Return a column's heading: the name without its unit suffix, with the unit people read."""
    if name.endswith("gpu_us"):
        stem = name[: -len("gpu_us")].strip("_")
        return f"{stem.replace('_', ' ')} GPU-h".strip()
    for suffix, unit in (("_milli", ""), ("_ppm", ""), ("_ms", "")):
        if name.endswith(suffix):
            return f"{name[: -len(suffix)].replace('_', ' ')}{unit}"
    return name.replace("_", " ")


def pick(rows: Sequence[Row], fields: Sequence[str] | None, columns: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Return the columns to show and the rows; raises ``ValueError`` naming an unknown field and the known ones."""
    if not fields:
        return list(columns), list(rows)
    known = list(columns) + [name for name in (rows[0] if rows else {}) if name not in columns]
    for name in fields:
        if name not in known:
            raise ValueError(f"there is no field {name!r} here; the fields are {', '.join(known)}")
    return list(fields), list(rows)


def json_text(document: Any) -> str:
    """Return one JSON document, readable, ending in a newline."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Return CSV with a header line; integers as stored, nested values as JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in columns])
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def raw_cell(value: Any) -> str:
    """Return one value as it is stored, for answers whose columns people named themselves."""
    if value is None:
        return "-"
    return clean(
        json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, (dict, list, tuple)) else str(value)
    )


def shown_cells(columns: Sequence[str], rows: Sequence[Row], *, raw: bool = False) -> list[list[str]]:
    """Return all cells as text, with each column of GPU-hours rounded so that it adds up; ``raw`` changes nothing."""
    if raw:
        return [[raw_cell(row.get(name)) for name in columns] for row in rows]
    by_column = []
    for name in columns:
        values = [row.get(name) for row in rows]
        parts = name.endswith("gpu_us") and name not in RUNNING_NAMES
        if parts and values and all(isinstance(value, int) for value in values):
            by_column.append(gpu_hours_column([int(value) for value in values if value is not None]))
        else:
            by_column.append([cell(name, value) for value in values])
    return [list(cells) for cells in zip(*by_column, strict=True)] if rows else []


GAP = 2
FLEXIBLE_MIN = 24
LEAST = 12


def fitted(
    columns: Sequence[str], widths: Mapping[str, int], width: int | None, drop: Sequence[str], flexible: str
) -> tuple[list[str], int]:
    """Return the columns that fit into ``width``, and the width of the flexible one.

    Columns named in ``drop`` go first, in that order; the flexible one shrinks down to FLEXIBLE_MIN before that.
    """
    shown = list(columns)
    if width is None:
        return shown, widths[flexible]
    candidates = [name for name in drop if name in shown]
    while True:
        fixed = sum(widths[name] + GAP for name in shown if name != flexible)
        room = width - fixed
        if room >= min(widths[flexible], FLEXIBLE_MIN) or not candidates:
            return shown, max(min(widths[flexible], LEAST), min(widths[flexible], room))
        shown.remove(candidates.pop(0))


def write_table(
    out: TextIO,
    columns: Sequence[str],
    rows: Sequence[Row],
    *,
    width: int | None = None,
    headings: Mapping[str, str] | None = None,
    total: Row | None = None,
    colour: bool = False,
    drop: Sequence[str] = (),
    flexible: str = "",
    raw: bool = False,
) -> list[str]:
    """Write an aligned table; return the columns that were left out because they did not fit into ``width``.

    Numbers go right. Text is never cut: the flexible column (the last one unless named) wraps, and columns named in
    ``drop`` are left out first. ``width`` None (a pipe) never wraps. ``total`` is one more row under a rule; its GPU-hours
    come from exact sums. ``raw`` shows names and values as they are stored.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    flexible = flexible or columns[-1]
    titles = {name: name if raw else (headings or {}).get(name, heading(name)).upper() for name in columns}
    body = [dict(zip(columns, cells, strict=True)) for cells in shown_cells(columns, rows, raw=raw)]
    if total is not None:
        body.append({name: cell(name, total[name]) if name in total else "" for name in columns})
    widths = {name: max([cell_len(titles[name]), *(cell_len(line[name]) for line in body)]) for name in columns}
    shown, flexible_width = fitted(columns, widths, width, drop, flexible)
    page = io.StringIO()
    needed = sum(widths[name] + GAP for name in shown) - widths[flexible] + flexible_width
    console = Console(
        file=page,
        width=max(width or 0, needed),
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        soft_wrap=False,
    )
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_edge=False)
    for name in shown:
        right = any(isinstance(row.get(name), int) and not isinstance(row.get(name), bool) for row in rows)
        right = right and (raw or not (name.endswith("_ms") and name not in DURATION_NAMES))
        table.add_column(
            Text(titles[name]),
            justify="right" if right else "left",
            width=flexible_width if name == flexible else None,
            no_wrap=name != flexible,
            overflow="fold",
        )
    for position, line in enumerate(body):
        is_total = total is not None and position == len(body) - 1
        table.add_row(*(Text(line[name], style="bold" if is_total else "") for name in shown))
    console.print(table)
    out.writelines(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())
    return [name for name in columns if name not in shown]
