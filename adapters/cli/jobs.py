"""Verbs on one job: why, job, logs.

``why`` and ``job`` ask the projector and put reasons and decisions into the words of ``adapters.wording``; ``logs`` reads
the folders of the nodes on this machine, so it works while everything else is down.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from apportion.adapters import render
from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.finding import workload_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import percent_or_dash
from apportion.adapters.cli.services import why_service
from apportion.adapters.cli.telling import decision_lines, elsewhere_words, moves_words, piece_words, skipped_words
from apportion.adapters.cli.verbs import Place, ReadPlace, one_of, read_verb, verb, whole
from apportion.adapters.cli.wishes import options_of
from apportion.adapters.wording import words_of

PANEL = "Look"
PROGRESS = ("run.progressed", "run.checkpointed")
Job = Annotated[str, typer.Argument(metavar="JOB", help="Workload id, or its name (the newest of that name)")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("why", rich_help_panel=PANEL)(read_verb(why))
    app.command("job", rich_help_panel=PANEL)(read_verb(job))
    app.command("logs", rich_help_panel=PANEL)(verb(logs))


async def why(place: ReadPlace, job: Job) -> Answer:
    """Explain why a job waits, or runs as it does, and what would help."""
    async with opened(place) as source:
        workload = await workload_of(source, job)
        if workload["state"] == "serving":
            return await why_service(source, str(workload["workload"]))
        reply = await source.ask("why", workload=workload["workload"])
        held = await _held(source, workload)
        at_ms = reply.as_of.time_ms
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in reply.rows:
        parts.setdefault(str(row["section"]), []).append(row)
    lines = _why_now(workload, parts, at_ms, held)
    lines += _why_budget(parts) if parts.get("now") else []
    sections = []
    if parts.get("instead"):
        rows = [{**row, "why": words_of("funding", str(row["reason"]), {})[0]} for row in parts["instead"]]
        sections.append(
            Section(rows, ["time_ms", "workload", "gpus_milli", "budget", "why"], key="instead",
                    title="started instead, since it waits (newest first)", headings={"time_ms": "at", "gpus_milli": "GPUs"})
        )  # fmt: skip
    earlier = parts.get("reason", [])
    if len({row["reason"] for row in earlier}) > 1:
        rows = _spells(earlier)
        sections.append(Section(rows, ["time_ms", "why"], key="reasons", title="reasons over time (newest first)",
                                headings={"time_ms": "since"}))  # fmt: skip
    document = {"as_of": reply.as_of.document(), "workload": workload, "lines": lines, **parts}
    return Answer(sections, lines, document=document if place.as_json else None, as_of=reply.as_of)


async def _held(source: Opened, workload: dict[str, Any]) -> dict[str, Any] | None:
    """Return the last allocation of a workload that runs: who pays for it now, and why."""
    if workload["state"] not in ("placed", "running", "stopping"):
        return None
    history = await source.ask("job", workload=workload["workload"])
    return next((row for row in reversed(history.rows) if row["source"] == "allocation"), None)


def _why_now(
    workload: dict[str, Any], parts: dict[str, list[dict[str, Any]]], at_ms: int, held: dict[str, Any] | None
) -> list[str]:
    name = str(workload["workload"])
    now = next(iter(parts.get("now", [])), None)
    pool = ((now or {}).get("numbers") or {}).get("pool") or workload["pool"]
    what = f"{render.gpus(workload['gpus_milli'])} of {workload['budget']} in pool {pool}"
    if now is None:
        ended = next(iter(parts.get("ended", [])), None)
        if ended is None:
            return [f"{name}: submitted, not decided yet"]
        sentence, action = words_of("outcome", str(ended["reason"]), {"job": name})
        lines = [f"{name}: over since {render.when(ended['time_ms'])}: {sentence} ({what})"]
        return lines + ([f"  what helps: {action}"] if action else [])
    since = render.duration(max(0, at_ms - now["time_ms"]))
    numbers = now.get("numbers") or {}
    if now["reason"] != "pending":
        lines = [f"{name}: {now['reason']} for {since} as run {numbers.get('run')}, {what}"]
        if numbers.get("home") not in (None, pool):
            lines.append(f"  it found no place in pool {numbers['home']}, where it waits when it is queued again")
        if held is not None:
            sentence, action = words_of("funding", str(held["reason"]), {})
            lines.append(f"  {'funded' if held['payer'] == 'budget' else 'unfunded'}: {sentence}")
            lines += [f"  what helps: {action}"] if action else []
        if idle := numbers.get("idle_since_ms"):
            cost = render.gpu_time(workload["gpus_milli"] * max(0, at_ms - idle))
            lines.append(f"  it holds its GPUs and does no work since {render.when(idle)}; cost so far {cost}")
        return lines
    position = numbers.get("position")
    place = f", number {position} in its budget's queue" if position else ""
    lines = [f"{name}: waits for {since}, {what}{place}"]
    reasons = parts.get("reason") or []
    if not reasons:
        return [*lines, "  not explained yet: the next cycle will"]
    last = reasons[0].get("numbers") or {}
    sentence, action = words_of("pending", str(reasons[0]["reason"]), last)
    told = [*lines, f"  why: {sentence}"]
    told += [elsewhere_words(row["numbers"]["pool"], row) for row in parts.get("elsewhere") or []]
    told += [skipped_words(row["numbers"]["pool"], str(row["reason"])) for row in parts.get("skipped") or []]
    told.append(f"  what helps: {action.replace('JOB', name)}")
    told += [f"  {moves_words(row['numbers'])}" for row in parts.get("moves") or []]
    if last.get("funded_since_ms"):
        waited = render.duration(at_ms - last["funded_since_ms"])
        told.append(f"  funded, and waiting at the head of its queue, for {waited} (since {render.when(last['funded_since_ms'])})")
    return told


def _spells(reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reasons over time, newest first, each once for as long as it held."""
    spells: list[dict[str, Any]] = []
    for row in reversed(reasons):
        if not spells or spells[-1]["reason"] != row["reason"]:
            spells.append({**row, "why": words_of("pending", str(row["reason"]), row.get("numbers") or {})[0]})
    return spells[::-1]


def _why_budget(parts: dict[str, list[dict[str, Any]]]) -> list[str]:
    row = next(iter(parts.get("budget", [])), None)
    if row is None:
        return []
    numbers = row.get("numbers") or {}
    text = (
        f"  budget {row['budget']}: entitled to {percent_or_dash(numbers.get('entitled_ppm'))} of the pool; holds "
        f"{render.gpus(numbers.get('held_milli') or 0)}; its allowance was last {render.gpus(numbers.get('allowance_milli') or 0)} "
        f"({render.when(row['time_ms'])})"
    )
    return [text]


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
