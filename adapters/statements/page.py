"""Statements as one self-contained page: for a screen, a screen reader and a sheet of paper.

A pure function of statements and of the line that says as of which event they hold. No script, no picture, nothing fetched:
what is opened years later says the same. All text that came from events is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from apportion.adapters.statements.statement import Statement
from apportion.adapters.statements.words import closing_lines, heading_lines, shown_line
from apportion.adapters.text import render

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; max-width: 70ch; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8886; }
th { border-bottom: 2px solid; font-weight: 600; }
.n { text-align: right; white-space: nowrap; }
.t { white-space: nowrap; }
td:first-child { min-width: 16rem; }
td:first-child { overflow-wrap: anywhere; }
tr.end th, tr.end td { font-weight: 600; border-bottom: 2px solid; }
.exact { overflow-wrap: anywhere; }
footer { margin-top: 2rem; font-size: .9rem; }
@media print {
  body { margin: 0; max-width: none; font-size: 9pt; color: #000; background: #fff; }
  thead { display: table-header-group; }
  tr { break-inside: avoid; }
  section + section { break-before: page; }
  @page { margin: 15mm; }
}
""".strip()

COLUMNS = (
    ("what", "What", False), ("user", "User", False), ("from", "From", False), ("to", "To", False),
    ("gpus_milli", "GPUs", True), ("funded_gpu_us", "Funded", True), ("unfunded_gpu_us", "Unfunded", True),
    ("refunded_gpu_us", "Refund", True), ("credit_gpu_us", "In or out", True),
)  # fmt: skip
RARE = ("refunded_gpu_us", "credit_gpu_us")


def page(statements: Sequence[Statement], as_of: str) -> str:
    """Return the whole document."""
    title = f"Statement of {statements[0].budget}"
    body = "\n".join(_section(one) for one in statements)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        f"<footer><p>{escape(as_of)}. Times in UTC. GPU-hours are rounded to a tenth; the sum that checks is exact.</p></footer>\n"
        f"</body>\n</html>\n"
    )


def _section(made: Statement) -> str:
    title, *told = heading_lines(made)
    heading = f"<h1>{escape(title[0].upper() + title[1:])}</h1>\n" + "\n".join(
        f"<p>{escape(line)}</p>" for line in told
    )
    closing, *exact = closing_lines(made)
    after = f"<p><strong>{escape(closing)}</strong></p>\n" + "\n".join(
        f'<p class="exact">{escape(line)}</p>' for line in exact
    )
    return f"<section>\n{heading}\n{_table(made)}\n{after}\n</section>"


def _table(made: Statement) -> str:
    shown = [shown_line(line, made) for line in made.lines]
    columns = [column for column in COLUMNS if column[0] not in RARE or any(row[column[0]] for row in shown)]
    hours = {
        name: render.gpu_hours_column([row[name] for row in shown]) for name, *_ in columns if name.endswith("gpu_us")
    }
    head = "".join(_cell("th", title, right, ' scope="col"') for _name, title, right in columns)
    head += _cell("th", made.word.capitalize(), True, ' scope="col"')
    rows = [_end("Opening", columns, {}, made.opening_gpu_us)]
    for number, row in enumerate(shown):
        cells = "".join(_cell("td", _text(row, name, hours, number), right) for name, _title, right in columns)
        rows.append(f"<tr>{cells}{_cell('td', render.gpu_hours(row['balance_gpu_us']), True)}</tr>")
    sums = {name: render.gpu_hours(sum(row[name] for row in shown)) for name in hours}
    rows.append(_end("Closing", columns, sums, made.closing_gpu_us))
    caption = f"{render.many(len(shown), 'line')}, amounts in GPU-hours"
    body = "\n".join(rows)
    return f"<table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _end(word: str, columns: Sequence[tuple[str, str, bool]], sums: dict[str, str], amount: int) -> str:
    cells = "".join(_cell("td", sums.get(name, ""), right) for name, _title, right in columns[1:])
    return f'<tr class="end"><th scope="row">{word}</th>{cells}{_cell("td", render.gpu_hours(amount), True)}</tr>'


def _text(row: dict[str, Any], name: str, hours: dict[str, list[str]], number: int) -> str:
    if name in hours:
        return hours[name][number] if row[name] else ""
    return row[name] if isinstance(row[name], str) else render.cell(name, row[name])


def _cell(tag: str, text: str, right: bool, more: str = "") -> str:
    short = len(text) <= 14 and not right
    kind = ' class="n"' if right else ' class="t"' if short and text else ""
    return f"<{tag}{kind}{more}>{escape(text)}</{tag}>"
