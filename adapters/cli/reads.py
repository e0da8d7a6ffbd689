"""What reads share: the options most of them take, and how a question and its columns are made ready.

The verbs are in modules of their own, by what they show.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apportion.adapters.text import render

PANEL = "Look"
Pool = Annotated[str, typer.Option("--pool", metavar="POOL", help="Only this pool")]
BudgetOption = Annotated[str, typer.Option("--budget", metavar="PATH", help="Only this budget and those below it")]
User = Annotated[str, typer.Option("--user", metavar="NAME", help="Only what this principal submitted")]


def given(**params: Any) -> dict[str, Any]:
    """Return the parameters that were given at all."""
    return {name: value for name, value in params.items() if value not in (None, "")}


def without_constant(columns: list[str], rows: list[dict[str, Any]], *names: str) -> list[str]:
    """Return the columns without those of ``names`` that say the same in every row."""
    constant = {name for name in names if len({str(row.get(name)) for row in rows}) <= 1}
    return [name for name in columns if name not in constant]


def percent_or_dash(ppm: int | None) -> str:
    """Return a part as percent, and a dash where there is none."""
    return "-" if ppm is None else render.percent(ppm)
