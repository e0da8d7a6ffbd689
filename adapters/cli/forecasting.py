"""Forecasts: the process that publishes them, and how good they would have been.

``forecast`` runs until a signal ends it, or one round with ``--once``; ``forecast backtest`` needs no server. What a forecast is
worth, and when it is published, is ``adapters.forecasting``; here is only what a person types and reads.
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import no_server, server_url
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.local import say
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import Place, lasting, principal_now, verb, whole

PANEL = "Run it"
PRINCIPAL = "forecaster"
EVERY_LEAST_MS = 10_000
COLUMNS = ("which", "way", "rows", "pinball", "of_median", "error_h", "coverage")
HEADINGS = {
    "which": "of", "way": "told by", "pinball": "pinball loss", "of_median": "of the median", "coverage": "came at most this, %",
    "error_h": "median off, h",
}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Register the group, which is a verb itself."""
    group = typer.Typer(rich_markup_mode=None, help="Run the forecaster: runtimes and traffic, published as events.")
    process = verb(forecast)

    def run(ctx: typer.Context, **given: Any) -> int:
        return 0 if ctx.invoked_subcommand else process(**given)

    asked = list(inspect.signature(process).parameters.values())
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    run.__signature__ = inspect.Signature([context, *asked])  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {"ctx": typer.Context} | {one.name: one.annotation for one in asked}
    group.callback(invoke_without_command=True)(run)
    group.command("backtest")(verb(backtest))
    app.add_typer(group, name="forecast", rich_help_panel=PANEL)


async def forecast(
    place: Place,
    once: Annotated[bool, typer.Option("--once", help="One round, and end")] = False,
    every: Annotated[int, lasting("From the beginning of a round to the next", "30m")] = 1_800_000,
    model_dir: Annotated[
        Path | None, typer.Option("--model-dir", metavar="DIR", help="Where fitted models are kept [default: in --dir, forecasts]")
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help=f"Publish as this principal [default: {PRINCIPAL}]")
    ] = None,
) -> Answer:
    """Run the forecaster: runtimes and traffic, published as events."""
    if every < EVERY_LEAST_MS:
        raise usage(f"--every {every}ms is too short", "at least 10s; 30m is usual")
    url = server_url(place)
    if url is None:
        raise no_server(place)
    from apportion.adapters.forecasting import process

    folder = model_dir or place.home.forecasts
    principal = principal_now(as_ or PRINCIPAL)
    tell = (lambda _text: None) if once else say
    try:
        done = await process.serve(url, folder, principal, every_s=every / 1000, once=once, tell=tell)
    except process.NotPermitted as error:
        raise Failure(FAILED, str(error)) from None
    if not once:
        return Answer()
    return Answer(lines=[done.line(), *(f"  model {model}" for model in done.models)], document=dataclasses.asdict(done))


async def backtest(
    place: Place,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", metavar="PATH", help="Folder of the ITP trace or GenTD26; repeat for both [default: generated]"),
    ] = None,
    days: Annotated[int, typer.Option("--days", parser=whole(14, 365), metavar="N", help="Of the trace of jobs")] = 56,
    weeks: Annotated[int, typer.Option("--weeks", parser=whole(1, 12), metavar="N", help="The last N of them are told")] = 4,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the generator")] = 1,
) -> Answer:
    """Train on the weeks before, tell the next: loss and coverage beside naive ways."""
    if weeks * 7 >= days:
        raise usage(f"--weeks {weeks} leaves nothing of --days {days} to learn from", "fewer weeks, or more days")
    from apportion.adapters.forecasting import report

    document: dict[str, Any] = {}
    try:
        paths: list[Path | None] = [*trace] if trace else [None]
        for path in paths:
            document |= report.of(path, days, weeks, seed)
    except ValueError as error:
        raise usage(str(error)) from None
    sections = [
        Section(
            rows, [column for column in COLUMNS if column in rows[0]], key=name, title=name, headings=HEADINGS,
            shown=[report.shown(row) for row in rows],
        )
        for name, rows in document.items() if name != "models"
    ]  # fmt: skip
    return Answer(sections=sections, document=document, after=report.NOTES)
