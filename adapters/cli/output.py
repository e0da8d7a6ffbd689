"""What a command answers with, and how it reaches stdout: table, JSON or CSV; freshness goes to stderr.

An ``Answer`` is data; ``show`` writes it. Numbers, names and sentences on stdout; "as of" and warnings on stderr, so a
pipe carries the data alone. ``--json`` prints exactly one document.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from apportion.adapters.cli.failure import Failure, usage
from apportion.adapters.text import render

Row = Mapping[str, Any]


@dataclass(frozen=True)
class AsOf:
    """How far the data reaches: the newest record in it, that record's time, and what the log has beyond it."""

    seq: int
    time_ms: int
    lag: int = 0  # records in the log that the data does not contain yet
    lag_ms: int = 0  # how long the oldest of them has been waiting
    note: str = ""

    def line(self) -> str:
        """Return the freshness line that ends every read, on stderr."""
        moment = render.iso(self.time_ms) if self.time_ms else "-"
        return f"as of seq {self.seq:,}, time {moment}, lag {self.lag:,}{', ' + self.note if self.note else ''}"

    def document(self) -> dict[str, Any]:
        """Return the same for JSON."""
        time_text = render.iso(self.time_ms) if self.time_ms else None
        note = {"note": self.note} if self.note else {}
        return {
            "seq": self.seq, "time_ms": self.time_ms, "time": time_text, "lag": self.lag, "lag_ms": self.lag_ms, **note
        }  # fmt: skip


@dataclass
class Section:
    """Rows under one key. ``columns`` are those of the table; JSON and CSV carry all of each row's fields."""

    rows: Sequence[Row]
    columns: Sequence[str]
    key: str = "rows"
    title: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)
    total: Row | None = None
    empty: str = ""  # shown instead of an empty table: what that means and the next command
    shown: Sequence[Row] | None = None  # rows as the table shows them, where they differ (bars, sentences)
    after: Sequence[str] = ()  # sentences under this table
    drop: Sequence[str] = ()  # columns that go first where the terminal is too narrow
    flexible: str = ""  # the column that wraps; the last one unless named
    raw: bool = False  # values as stored, for columns people named themselves


@dataclass
class Answer:
    """All a command has to say. ``lines`` are sentences for people, before the tables; ``document`` replaces the JSON."""

    sections: list[Section] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)  # sentences after the tables: next commands
    text: str = ""  # printed as it is, before everything else
    document: Any = None
    more: dict[str, Any] = field(default_factory=dict)  # further keys of the JSON document
    as_of: AsOf | None = None
    code: int = 0


@dataclass(frozen=True)
class Format:
    """How to print: exactly one of table (neither flag), JSON, CSV; optionally only some fields."""

    as_json: bool = False
    as_csv: bool = False
    only: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise usage("--json and --csv cannot both be given", "choose one of them")


def terminal_width(out: TextIO) -> int | None:
    """Return the width to wrap at: of the terminal, or of ``$COLUMNS``; None for a pipe, which never wraps."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    return shutil.get_terminal_size().columns if out.isatty() else None


def wants_colour(out: TextIO) -> bool:
    """Tell whether to use colour: only on a terminal, and never with ``$NO_COLOR``."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show(answer: Answer, form: Format, out: TextIO | None = None, err: TextIO | None = None) -> None:
    """Write the answer. Raises ``Failure`` (usage) for a field that is not there."""
    out, err = out or sys.stdout, err or sys.stderr
    if form.as_json:
        out.write(render.json_text(_document(answer, form)))
    elif form.as_csv:
        _show_csv(answer, form, out)
    else:
        _show_table(answer, form, out)
    out.flush()
    if answer.as_of is not None and not form.as_json:
        err.write(answer.as_of.line() + "\n")
        err.flush()


def _document(answer: Answer, form: Format) -> Any:
    if answer.document is not None:
        whole = answer.document
        if answer.as_of is None or not isinstance(whole, dict) or "as_of" in whole:
            return whole
        return {**whole, "as_of": answer.as_of.document()}  # no number without its moment
    document: dict[str, Any] = {}
    if answer.as_of is not None:
        document["as_of"] = answer.as_of.document()
    document.update(answer.more)
    for position, section in enumerate(answer.sections):
        rows = [dict(row) for row in section.rows]
        if form.only and position == 0:
            names, picked = _pick(section, form)
            rows = [{name: row.get(name) for name in names} for row in picked]
        document[section.key] = rows
    return document


def _show_csv(answer: Answer, form: Format, out: TextIO) -> None:
    if not answer.sections:
        raise usage("this command has no table, so --csv has nothing to print", "use --json")
    section = answer.sections[0]
    if form.only:
        names, rows = _pick(section, form)
    else:
        rows = list(section.rows)
        names = list(dict.fromkeys([*(name for row in rows[:1] for name in row), *section.columns]))
        names = names if rows else list(section.columns)
    out.write(render.csv_text(names, rows))


def _show_table(answer: Answer, form: Format, out: TextIO) -> None:
    width, colour = terminal_width(out), wants_colour(out)
    sections = answer.sections[:1] if form.only else answer.sections
    if not form.only:
        out.write(answer.text)
        write_lines(out, answer.lines, width)
    for position, section in enumerate(sections):
        if not form.only and (position or answer.lines):
            out.write("\n")
        if section.title and not form.only:
            out.write(section.title + "\n")
        if not section.rows:
            write_lines(out, [section.empty or "nothing to show"], width)
            continue
        if form.only:
            names, rows = _pick(section, form)
        else:
            names, rows = list(section.columns), list(section.shown or section.rows)
        render.write_table(
            out,
            names,
            rows,
            width=width,
            headings=section.headings,
            total=None if form.only else section.total,
            colour=colour,
            drop=() if form.only else section.drop,
            flexible=section.flexible if section.flexible in names else "",
            raw=section.raw,
        )
        if not form.only:
            write_lines(out, section.after, width)
    if answer.after and not form.only:
        out.write("\n")
        write_lines(out, answer.after, width)


def write_lines(out: TextIO, lines: Sequence[str], width: int | None) -> None:
    """Write sentences, wrapped at the terminal's width with the indent of their first line; numbers keep their units."""
    import re
    import textwrap

    for line in lines:
        if width is None or len(line) <= width:
            out.write(line + "\n")
            continue
        indent = " " * (len(line) - len(line.lstrip()))
        kept = re.sub(r"(\d) (%|GPUs?\b|GPU-[hs]\b)", "\\1\N{NO-BREAK SPACE}\\2", line.strip())
        filled = textwrap.fill(
            kept,
            max(20, width),
            initial_indent=indent,
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        out.write(filled.replace("\N{NO-BREAK SPACE}", " ") + "\n")


def _pick(section: Section, form: Format) -> tuple[list[str], list[Row]]:
    try:
        return render.pick(section.rows, list(form.only), list(section.columns))
    except ValueError as error:
        raise usage(str(error)) from None


def show_failure(failure: Failure, *, as_json: bool, err: TextIO | None = None) -> None:
    """Write a failure to stderr: what was wrong, and what to do."""
    err = err or sys.stderr
    if as_json:
        err.write(render.json_text(failure.document()))
    else:
        err.write(f"error: {failure.what}\n")
        if failure.do:
            err.write(f"  try: {failure.do}\n")
    err.flush()
