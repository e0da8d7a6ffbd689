"""``statement``: what a budget had, got, paid and has left over a period, line by line, as text, CSV, JSON, Parquet or a page.

Asks the projection for both ends and for the lines, and lets ``adapters.statements.statement`` put them together, which
refuses what does not add up. Nothing is worked out here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, Reply, opened
from apportion.adapters.cli.bills import compared
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.periods import FORMS, Period, period_of
from apportion.adapters.cli.querying import PARQUET, save_parquet
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.statements.statement import Statement, statement
from apportion.adapters.statements.words import closing_lines, heading_lines, shown_line
from apportion.adapters.text import render

PANEL = "Budgets and members"
COLUMNS = (
    "what", "user", "from", "to", "gpus_milli", "funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "credit_gpu_us",
    "balance_gpu_us",
)  # fmt: skip
SUMS = ("funded_gpu_us", "unfunded_gpu_us", "refunded_gpu_us", "credit_gpu_us")
HEADINGS = {
    "gpus_milli": "GPUs", "funded_gpu_us": "funded h", "unfunded_gpu_us": "unfund. h", "refunded_gpu_us": "refund h",
    "credit_gpu_us": "in or out h", "balance_gpu_us": "balance h",
}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("statement", rich_help_panel=PANEL)(read_verb(show))


async def show(
    place: ReadPlace,
    budget: Annotated[str, typer.Option("--budget", metavar="PATH", help="The budget; those below it are included")],
    period: Annotated[str, typer.Option("--period", metavar="PERIOD", help=FORMS)] = "this-month",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="Only this pool [default: each it is in]")] = "",
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page too")] = None,
    parquet: PARQUET = None,
    as_known: Annotated[
        str,
        typer.Option("--as-known", metavar="SEQ|TIME", help="Compare the period's bill as it was known then with now"),
    ] = "",
) -> Answer:
    """Print a budget's statement: opening balance, each run, grants, closing balance."""
    async with opened(place) as source:
        found = await budget_of(source, budget)
        as_of = (await source.ask("pools")).as_of
        span = _span(period, as_of)
        pools = [str(row["pool"]) for row in found if not pool or row["pool"] == pool]
        if not pools:
            raise usage(
                f"budget {budget} is not in pool {pool!r}", f"it is in {', '.join(str(row['pool']) for row in found)}"
            )
        if as_known:
            if html is not None or parquet is not None:
                raise usage("--as-known compares two bills, and has no --html and no --parquet", "use --csv or --json")
            return await compared(source, place, budget, sorted(pools), span, as_of, as_known)
        made = [await _one(source, budget, name, span, as_of) for name in sorted(pools)]
    after = []
    if html is not None:
        from apportion.adapters.statements.page import page

        _write(html, page(made, as_of.line()))
        after = [f"written to {html}"]
    if parquet is not None:
        lines = [row for one in made for row in one.table()]
        after.append(save_parquet(parquet, Reply(list(lines[0]), lines, as_of, {"types": _types(lines)})))
    sections = [section for one in made for section in _sections(one)]
    if place.form.as_csv or place.form.only:
        rows = [row for one in made for row in one.table()]
        sections = [Section(rows, list(rows[0]))]
    return Answer(sections, after=after, document=_document(place, made, as_of), as_of=as_of)


def _types(lines: list[dict[str, Any]]) -> list[str]:
    """Return the SQL types of a statement's columns, the same whatever is in it: integers but for words."""
    words = {"pool", "statement_of", "kind", "workload", "name", "user", "budget", "outcome", "other", "reason"}
    return ["VARCHAR" if name in words else "BIGINT" for name in lines[0]]


def _document(place: ReadPlace, made: list[Statement], as_of: AsOf) -> dict[str, Any] | None:
    if not place.as_json or place.form.only:
        return None
    return {"as_of": as_of.document(), "statements": [one.document() for one in made]}


def _span(text: str, as_of: AsOf) -> Period:
    try:
        span = period_of(text, as_of.time_ms)
    except ValueError as error:
        raise usage(str(error)) from None
    if span.from_ms > as_of.time_ms:
        raise usage(
            f"that period begins at {render.when(span.from_ms)}, and the data ends at {render.when(as_of.time_ms)}",
            "ask for an earlier period, such as --period this-month",
        )
    return span


async def _one(source: Opened, budget: str, pool: str, span: Period, as_of: AsOf) -> Statement:
    asked = {"seq": as_of.seq, "budget": budget, "pool": pool, "from_ms": span.from_ms, "to_ms": span.to_ms}
    edges = await source.ask("balance", **asked)
    lines = await source.ask("statement", **asked)
    return statement(budget, pool, span, edges.rows, lines.rows)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise usage(f"cannot write {path}: {error.strerror}", "choose another file with --html") from None


def _sections(made: Statement) -> list[Section]:
    shown = [shown_line(line, made) for line in made.lines]
    used = [
        name for name in COLUMNS if name not in ("refunded_gpu_us", "credit_gpu_us") or any(row[name] for row in shown)
    ]
    total: dict[str, Any] = {"what": "sum of the lines", "balance_gpu_us": made.closing_gpu_us}
    total |= {name: sum(row[name] for row in shown) for name in SUMS if name in used}
    headings = {**HEADINGS, "balance_gpu_us": f"{made.word} h"}
    return [
        Section(
            made.lines,
            used,
            key=f"{made.pool}",
            title="\n".join(heading_lines(made)),
            shown=shown,
            headings=headings,
            total=total,
            drop=("user", "from", "unfunded_gpu_us", "to"),
            flexible="what",
            empty="no run and no posting in this period",
            after=["", *closing_lines(made)],
        )
    ]
