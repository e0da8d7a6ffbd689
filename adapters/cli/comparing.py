"""The verb that plays the same work under several policies: compare.

It needs no installation and touches none: plays run in memory, in processes of their own. With ``--out`` the two pictures are
written there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.failure import FAILED, usage
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.verbs import Place, use_kernels, verb, whole
from apportion.adapters.text import render

PANEL = "Check and replay"
MAX_DAYS = 60


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("compare", rich_help_panel=PANEL)(verb(compare))


def _demand(text: str) -> int:
    """Return ``2.5`` as 2,500 thousandths."""
    try:
        milli = round(float(text) * 1_000)
    except ValueError:
        milli = 0
    if not 100 <= milli <= 20_000:
        raise typer.BadParameter(f"{text!r} is no demand: GPU time asked over GPU time there is, from 0.1 to 20")
    return milli


async def compare(
    place: Place,
    policies: Annotated[
        str, typer.Option("--policies", metavar="NAMES", help="Which, with commas: fair, fifo, priority, fair_tree, drf")
    ] = "fair,fifo,priority,fair_tree,drf",
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="PATH", help="Play ITP, Philly, or jobs of `import --jobs` [default: made-up jobs]"),
    ] = None,
    days: Annotated[int, typer.Option("--days", parser=whole(1, MAX_DAYS), metavar="N", help="How many days")] = 7,
    demand: Annotated[
        int | None,
        typer.Option("--demand", parser=_demand, metavar="X", help="GPU time asked, in times of what there is [default: 2.5]"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the generator and of what goes wrong")] = 1,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Draw the pictures into this folder")] = None,
) -> Answer:
    """Play the same work under several policies; show what each budget got."""
    use_kernels()
    from apportion.adapters.comparing.playing import POLICIES, Outcome, play_all
    from apportion.adapters.comparing.report import document, lines
    from apportion.adapters.comparing.story import StoryRefused, story

    wanted = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    unknown = [name for name in wanted if name not in POLICIES]
    if unknown or not wanted:
        raise usage(f"--policies {policies}: there is no policy {', '.join(unknown) or 'named'}", f"there are {','.join(POLICIES)}")
    chosen = [policy for policy in POLICIES if policy in wanted]
    try:
        played = story(trace, days, demand, seed)
    except StoryRefused as refused:
        raise usage(str(refused)) from None

    def told(outcome: Outcome) -> None:
        if not place.as_json:
            played = f"{render.many(outcome.events, 'event')}, {render.many(outcome.cycles, 'cycle')}"
            sys.stderr.write(f"played {outcome.policy}: {played}\n")

    outcomes = play_all(played, chosen, told)
    files = [] if out is None else _draw(out, played, outcomes)
    sound = not any(outcome.complaints for outcome in outcomes)
    return Answer(
        text="\n".join(lines(played, outcomes, files)) + "\n",
        document=document(played, outcomes, files),
        code=0 if sound else FAILED,
    )


def _draw(folder: Path, played: Any, outcomes: Any) -> list[str]:
    from apportion.adapters.comparing import charts

    pictures = {"shares.svg": charts.shares_over_time, "waits.svg": charts.waiting_times}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in pictures.items():
            (folder / name).write_text(draw(played, outcomes), encoding="utf-8")
    except OSError as error:
        raise usage(f"--out {folder}: {error.strerror or error}", "name a folder that can be written to") from error
    return [str(folder / name) for name in pictures]
