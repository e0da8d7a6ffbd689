"""``why-not NODE JOB``: each test that stands between a node and a job, in order, with what it found.

The tests are the core's own, on its state at the cycle that the answer holds for (``adapters.explaining.nodes``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.explained import explained
from apportion.adapters.cli.failure import FAILED, Failure
from apportion.adapters.cli.finding import node_of, workload_of
from apportion.adapters.cli.jobs import PANEL, Job
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.cli.why import until_words
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.explaining.moment import Moment

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's name")]


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("why-not", rich_help_panel=PANEL)(read_verb(why_not))


async def why_not(place: ReadPlace, node: Node, job: Job) -> Answer:
    """Tell why a job that waits does not start on a node: each test, in order."""
    async with opened(place) as source:
        workload = await workload_of(source, job)
        await node_of(source, node)
        as_of = (await source.ask("runs", workload=workload["workload"])).as_of
        name = str(workload["workload"])
        found = await explained(place, source, as_of.seq, {"workload": name, "node": node}, partial(_here, name, node))
    if found is None:
        do = "ask about a later moment (--at, --seq), or where the log can be read"
        raise Failure(FAILED, f"nothing is known of node {node} at record {as_of.seq:,}", do)
    if "tests" not in found:
        do = f"`apportion job {job}` shows when it waited; ask about that moment with --at or --seq"
        raise Failure(FAILED, f"{workload['workload']} does not wait at record {as_of.seq:,}: {_state(workload)}", do)
    rows = [{**row, "holds": "yes" if row["holds"] else "no"} for row in found["tests"] if row["words"]]
    section = Section(rows, ["label", "holds", "words"], key="tests", headings={"label": "test", "words": "found"})
    sections = [section]
    if found["runs"]:
        runs = found["runs"]
        sections.append(
            Section(runs, ["workload", "gpus_here_milli", "budget", "user", "payer", "until"], key="runs",
                    title=f"what runs on {node}", headings={"gpus_here_milli": "GPUs there"},
                    shown=[{**run, "until": until_words(run)} for run in runs], drop=("user", "payer"))
        )  # fmt: skip
    document = {"as_of": as_of.document(), **found}
    return Answer(sections, _lines(found, workload), document=document if place.as_json else None, as_of=as_of)


def _state(workload: dict[str, Any]) -> str:
    return f"it has ended: {workload['outcome']}" if workload.get("outcome") else f"it is {workload['state']}"


def _here(workload: str, node: str, moment: Moment) -> dict[str, Any] | None:
    from apportion.adapters.explaining.report import node_explanation

    return node_explanation(moment, node, workload)


def _lines(found: dict[str, Any], workload: dict[str, Any]) -> list[str]:
    """Return the verdict."""
    name, node = found["workload"], found["node"]
    asked = render.gpus(workload["gpus_milli"]) + (f" on {workload['nodes']} nodes" if workload["nodes"] > 1 else "")
    failing = [row for row in found["tests"] if not row["holds"]]
    if failing:
        more = f", and {len(failing) - 1} more" if len(failing) > 1 else ""
        return [f"{name} ({asked}) cannot start on {node} now: {failing[0]['words']}{more}"]
    if found["job_would_fit"]:
        where = f"it would get {', '.join(found['chosen'][:4])}" if node not in found["chosen"] else "it would get it"
        return [f"{node} would do for {name} ({asked}), and as far as space goes {where} now; it waits because "
                f"{found['causes'][0]['sentence']}"]  # fmt: skip
    return [f"{node} would do for {name} ({asked}); it waits because {found['causes'][0]['sentence']}"]
