"""Verbs on one job: job, logs.

``job`` asks the projector and puts decisions into the words of ``adapters.text.wording``; ``logs`` reads
the folders of the nodes on this machine, so it works while everything else is down.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.finding import workload_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.telling import decision_lines, piece_words
from apportion.adapters.cli.verbs import Place, ReadPlace, one_of, read_verb, verb, whole
from apportion.adapters.cli.wishes import options_of
from apportion.adapters.text import render

PANEL = "Look"
PROGRESS = ("run.progressed", "run.checkpointed")
Job = Annotated[str, typer.Argument(metavar="JOB", help="Workload id, or its name (the newest of that name)")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs, and those that explain one job."""
    from apportion.adapters.cli import why, why_not, why_preempted  # they use the words of this module

    for module in (why, why_not, why_preempted):
        module.add_to(app)
    app.command("job", rich_help_panel=PANEL)(read_verb(job))
    app.command("logs", rich_help_panel=PANEL)(verb(logs))


async def job(
    place: ReadPlace,
    job: Job,
    all_: Annotated[
        bool, typer.Option("--all", help="Progress, checkpoints, allocations and ledger lines too")
    ] = False,
) -> Answer:
    """Show one job: what was asked, its runs, and all that happened to it."""
    async with opened(place) as source:
        workload = await workload_of(source, job)
        runs = await source.ask("runs", workload=workload["workload"])
        history = await source.ask("job", workload=workload["workload"])
    timeline = [row for row in (_told(row, str(workload["workload"])) for row in history.rows) if row["text"]]
    if not all_:
        timeline = [row for row in timeline if row["source"] in ("event", "decision") and row["what"] not in PROGRESS]
    sections = [
        Section(
            [{**row, "on": _on(row)} for row in runs.rows],
            ["run", "outcome", "placed_ms", "ran_ms", "funded", "unfunded", "exit_code", "on"],
            key="runs",
            title="runs",
            headings={"placed_ms": "from", "ran_ms": "for", "exit_code": "exit"},
            empty="it has not run yet; `apportion why` tells the reason",
            shown=[_run_shown(row) for row in runs.rows],
            drop=("exit_code", "ran_ms"),
        ),
        Section(
            timeline, ["time_ms", "seq", "text"], key="history", title="history",
            headings={"time_ms": "at", "text": "what"}, drop=("seq",),
        ),
    ]  # fmt: skip
    return Answer(sections, _job_lines(workload), more={"workload": workload}, as_of=history.as_of)


def _job_lines(row: dict[str, Any]) -> list[str]:
    name = f" ({render.clean(row['name'])})" if row["name"] and row["name"] != row["workload"] else ""
    ended = f", over since {render.when(row['ended_ms'])}" if row.get("ended_ms") else ""
    nodes = f" on {row['nodes']} nodes" if row["nodes"] > 1 else ""
    wish = [f"{row['kind']}, {render.gpus(row['gpus_milli'])}{nodes}"]
    wish.append(f"protected {render.duration(row['min_runtime_ms'])}" if row["min_runtime_ms"] else "idle GPUs only")
    if row["expected_runtime_ms"]:
        wish.append(f"at most {render.duration(row['expected_runtime_ms'])}")
    if row["priority"]:
        wish.append(f"priority {row['priority']}")
    command = row.get("command")
    if isinstance(command, (list, tuple)) and command:
        import shlex

        text = render.clean(shlex.join(str(part) for part in command))
        told = [f"  runs {text[:200]}{'...' if len(text) > 200 else ''}"]
    else:
        told = []
    return [
        f"{row['workload']}{name}: {row['state']}{ended}",
        f"  {row['principal']} submitted it {render.when(row['submitted_ms'])} to {row['budget']} in pool {row['pool']}",
        f"  {', '.join(wish)}",
        *([f"  with {asked}"] if (asked := options_of(row)) else []),
        *told,
    ]


def _on(row: dict[str, Any]) -> str:
    return ", ".join(piece_words(piece) for piece in row.get("pieces") or [])


def _run_shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a run as a table shows it: how long it ran, what it cost, and who paid."""
    return {
        **row,
        "outcome": f"in progress, {_standing(row)}" if row["is_open"] else row["outcome"],
        "ran_ms": row["end_ms"] - row["placed_ms"],
        "funded": render.gpu_time(row["funded_gpu_us"]) if row["funded_gpu_us"] else "-",
        "unfunded": render.gpu_time(row["unfunded_gpu_us"]) if row["unfunded_gpu_us"] else "-",
        "exit_code": None if row["is_open"] else row["exit_code"],
        "on": _on(row),
    }


def _standing(row: dict[str, Any]) -> str:
    """Return one of the three states of a run; a protected one with the end of that."""
    until = f" to {render.when(row['protected_until_ms'])[5:16]}" if row["standing"] == "protected" else ""
    return f"{row['standing']}{until}"


def _told(row: dict[str, Any], workload: str) -> dict[str, Any]:
    """Return a line of a job's history with its text."""
    detail = row.get("detail") or {}
    if row["source"] == "decision":
        lines = decision_lines("", {**detail, "type": row["what"]})
        text = "; ".join(
            line.strip().lstrip(": ") for line in lines if not line.startswith(("  what helps", "  to change"))
        )
    elif row["source"] == "event":
        text = _event_words(row, detail)
    elif row["source"] == "allocation":
        amount = render.gpu_time(row["gpu_us"])
        text = f"held {render.gpus(row['gpus_milli'])} on {row['node']}, paid by {row['payer']}: {amount}"
    else:
        text = f"ledger: {row['what']} {row['reason']} {render.gpu_time(row['gpu_us'])}"
    return {**row, "text": text}


def _event_words(row: dict[str, Any], detail: dict[str, Any]) -> str:
    who = f"{row['principal']}: "
    refused = " (refused)" if row["reason"] == "refused" else ""
    reason = f": {render.clean(str(detail['reason']))}" if detail.get("reason") else ""
    kind = row["what"]
    run = detail.get("run")
    if kind == "workload.submitted":
        return f"{who}submitted{refused}"
    if kind == "workload.cancelled":
        return f"{who}cancelled it{reason}{refused}"
    if kind == "workload.reprioritized":
        return f"{who}set its priority to {detail.get('priority')}{reason}{refused}"
    if kind == "run.started":
        return f"{who}run {run} started on {detail.get('node')}, pid {detail.get('pid')}{refused}"
    if kind == "run.finished":
        code = detail.get("exit_code", 0)
        return f"{who}run {run} finished on {detail.get('node')}: {detail.get('outcome')}, exit code {code}{refused}"
    if kind == "run.checkpointed":
        return f"{who}run {run} can resume from {render.duration(int(detail.get('progress_ms', 0)))}{refused}"
    if kind == "run.progressed":
        return f"{who}run {run} is at {render.duration(int(detail.get('progress_ms', 0)))}{refused}"
    if kind == "run.lost":
        return f"{who}run {run} is lost on {detail.get('node')}{refused}"
    return f"{who}{kind}{refused}"


async def logs(
    place: Place,
    job: Job,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends")] = False,
    run: Annotated[
        int | None, typer.Option("--run", parser=whole(1), metavar="N", help="This run [default: the newest]")
    ] = None,
    stream: Annotated[
        str,
        typer.Option(
            "--stream", parser=one_of("stdout", "stderr", "both"), metavar="NAME", help="stdout, stderr or both"
        ),
    ] = "both",
) -> Answer:
    """Print a job's output: its stdout to stdout, its stderr to stderr."""
    import asyncio
    import threading

    from apportion.adapters.agent.logs import read_log

    workload = await _workload_here(place, job)
    ended = threading.Event()
    chunks: list[dict[str, Any]] = []

    def copy() -> None:
        for chunk in read_log(place.home, workload, run, follow, go_on=lambda: not ended.is_set()):
            if stream not in ("both", chunk.stream):
                continue
            if place.as_json:
                chunks.append(chunk._asdict())
                continue
            target = sys.stderr if chunk.stream == "stderr" and stream == "both" else sys.stdout
            target.write(chunk.text)
            target.flush()

    try:
        await asyncio.to_thread(copy)
    finally:
        ended.set()  # the thread must not outlive an interrupt
    return Answer(document={"workload": workload, "chunks": chunks})


async def _workload_here(place: Place, job: str) -> str:
    """Return the workload's id: folders on this machine need nobody's help, a name needs the projection."""
    from apportion.adapters.agent.logs import runs_of

    if runs_of(place.home, job):
        return job
    async with opened(place) as source:
        return str((await workload_of(source, job))["workload"])
