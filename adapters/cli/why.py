"""``why JOB``: every cause with its numbers, who stands before it, who holds what it needs, and the smallest change that starts it.

What was told while it waited comes from the projector; the causes and what would change them from the core's own functions on its
state at the cycle that the answer holds for (``adapters.explaining``). For who may not read the log the reasons as told remain.
"""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import Opened, opened
from apportion.adapters.cli.expecting import expectation, lines_of
from apportion.adapters.cli.explained import explained
from apportion.adapters.cli.finding import workload_of
from apportion.adapters.cli.jobs import PANEL, Job
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import percent_or_dash
from apportion.adapters.cli.services import why_service
from apportion.adapters.cli.telling import elsewhere_words, moves_words, skipped_words
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.text import render
from apportion.adapters.text.wording import words_of

if TYPE_CHECKING:
    from apportion.adapters.explaining.moment import Moment

Parts = dict[str, list[dict[str, Any]]]
COMMANDS_SHOWN = 3
WAITS = ("pending", "held", "queued")


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("why", rich_help_panel=PANEL)(read_verb(why))


async def why(
    place: ReadPlace,
    job: Job,
    fast: Annotated[bool, typer.Option("--fast", help="Causes only: do not try what would start it")] = False,
) -> Answer:
    """Explain why a job waits, or runs as it does, and what would start it."""
    async with opened(place) as source:
        workload = await workload_of(source, job)
        if workload["state"] == "serving":
            return await why_service(source, str(workload["workload"]))
        reply = await source.ask("why", workload=workload["workload"])
        held = await _held(source, workload)
        parts: Parts = {}
        for row in reply.rows:
            parts.setdefault(str(row["section"]), []).append(row)
        now = next(iter(parts.get("now", [])), None)
        known, expected = None, None
        if now is not None and now["reason"] in WAITS:
            name, seq = str(workload["workload"]), reply.as_of.seq
            known = await explained(place, source, seq, {"workload": name, "trials": not fast}, partial(_here, name, fast))
            known = known if known and "causes" in known else None
            core = known["expected"] if known else None
            expected = await expectation(source, workload, now["time_ms"], reply.as_of.seq, reply.as_of.time_ms, core)
    lines = _now(workload, parts, reply.as_of.time_ms, held, known)
    if now is not None:
        lines += _budget(parts)
    lines += _beyond(known) if known else []
    lines += lines_of(expected, str(workload["budget"])) if expected else []
    lines += _changes(known, workload) if known else []
    sections = [*_sections(known), *_history(parts)]
    document = {
        "as_of": reply.as_of.document(), "workload": workload, "lines": lines, **parts,
        **({"explanation": known} if known else {}), **({"expected": expected} if expected else {}),
    }  # fmt: skip
    return Answer(sections, lines, document=document if place.as_json else None, as_of=reply.as_of)


def _here(workload: str, fast: bool, moment: Moment) -> dict[str, Any] | None:
    from apportion.adapters.explaining.report import explanation

    return explanation(moment, workload, trials=not fast)


async def _held(source: Opened, workload: dict[str, Any]) -> dict[str, Any] | None:
    """Return the last allocation of a workload that runs: who pays for it now, and why."""
    if workload["state"] not in ("placed", "running", "stopping"):
        return None
    history = await source.ask("job", workload=workload["workload"])
    return next((row for row in reversed(history.rows) if row["source"] == "allocation"), None)


def _now(
    workload: dict[str, Any], parts: Parts, at_ms: int, held: dict[str, Any] | None, known: dict[str, Any] | None
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
    if now["reason"] not in WAITS:
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
    return lines + (_causes(known, name) if known else _as_told(parts, name)) + _told_beside(parts, name, at_ms)


def _causes(known: dict[str, Any], name: str) -> list[str]:
    """Return all causes, ranked, each with what helps; and those of other pools."""
    lines = []
    for number, cause in enumerate(known["causes"], 1):
        lines.append(f"  {number}. {cause['sentence']}")
        if cause["action"]:
            lines.append(f"     what helps: {cause['action'].replace('JOB', name)}")
    return lines + [f"  in pool {cause['pool']} neither: {cause['sentence']}" for cause in known["elsewhere"]]


def _as_told(parts: Parts, name: str) -> list[str]:
    """Return the reason as it was told last."""
    reasons = parts.get("reason") or []
    if not reasons:
        return ["  not explained yet: the next cycle will"]
    sentence, action = words_of("pending", str(reasons[0]["reason"]), reasons[0].get("numbers") or {})
    told = [f"  why: {sentence}"]
    told += [elsewhere_words(row["numbers"]["pool"], row) for row in parts.get("elsewhere") or []]
    return [*told, f"  what helps: {action.replace('JOB', name)}"]


def _told_beside(parts: Parts, name: str, at_ms: int) -> list[str]:
    """Return what was told beside reasons: pools that can never take it, moves, since when it would be funded."""
    told = [skipped_words(row["numbers"]["pool"], str(row["reason"])) for row in parts.get("skipped") or []]
    told += [f"  {moves_words(row['numbers'])}" for row in parts.get("moves") or []]
    reasons = parts.get("reason") or []
    if reasons and (since_ms := (reasons[0].get("numbers") or {}).get("funded_since_ms")):
        waited = render.duration(at_ms - since_ms)
        told.append(f"  funded, and waiting at the head of its queue, for {waited} (since {render.when(since_ms)})")
    return told


def _budget(parts: Parts) -> list[str]:
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


def _beyond(known: dict[str, Any]) -> list[str]:
    """Return who stands before it."""
    lines, budget = [], known["budget"]
    if budget["funded"]:
        lines.append(
            f"  if it started now its budget would pay: allowance {render.gpus(budget['allowance_milli'])}, "
            f"{render.gpus(budget['running_milli'])} of it run"
        )
    if known["ahead"]:
        named = ", ".join(f"{row['workload']} ({render.gpus(row['gpus_milli'])})" for row in known["ahead_first"])
        more = known["ahead"] - len(known["ahead_first"])
        lines.append(f"  before it in its budget: {named}{f' and {more:,} more' if more else ''}")
    turn = known["turn"]
    if turn["of"]:
        place = f"number {turn['place']:,}" if turn["place"] else "far back"
        lines.append(f"  its budget is {place} of {turn['of']:,} that wait in the pool, in the order in which they are served")
    return lines


def _sections(known: dict[str, Any] | None) -> list[Section]:
    if not known:
        return []
    sections = []
    if known["holders"]["runs"]:
        nodes = known["holders"]["nodes"]
        named = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
        rows = known["holders"]["runs"]
        sections.append(
            Section(rows, ["workload", "gpus_here_milli", "budget", "user", "payer", "until"], key="holders",
                    title=f"what runs on the nodes that would do ({named})", headings={"gpus_here_milli": "GPUs there"},
                    shown=[{**row, "until": until_words(row)} for row in rows], drop=("user", "payer"))
        )  # fmt: skip
    return sections


def until_words(run: dict[str, Any]) -> str:
    """Return until when a run says that it runs, and until when it may not be asked to go."""
    if run["stopping"]:
        return f"it was asked to go, has until {render.when(run['until_ms'])}"
    if run["late"]:
        until = "later than it stated"
    else:
        until = render.when(run["until_ms"]) if run["until_ms"] else "it states no end"
    if run["protected_until_ms"]:
        until += f", protected to {render.when(run['protected_until_ms'])[5:16]}"
    return until + (f", does no work since {render.when(run['idle_since_ms'])}" if run["idle_since_ms"] else "")


def _changes(known: dict[str, Any], workload: dict[str, Any]) -> list[str]:
    """Return what would start it now, with the commands that do it."""
    if "changes" not in known:
        return []
    tried = f"({render.many(known['trials'], 'cycle')} tried)"
    if not known["changes"]:
        return [f"  no single change of those tried would start it now {tried}"]
    lines = ["", f"the smallest change of each kind that would start it now {tried}; COMMAND stands for what it runs:"]
    for change in known["changes"]:
        lines += [f"  {change['what']}: {change['cost']}", f"    $ {_command(_whole(change['commands'], workload))}"]
    return lines


def _whole(commands: list[str], workload: dict[str, Any]) -> list[str]:
    """Return commands with what the core does not know of the job: its name, its kind, how often it saves."""
    from apportion.adapters.explaining.commands import exact

    known = [f"--name {shlex.quote(str(workload['name']))}"] if workload["name"] else []
    known += [f"--kind {workload['kind']}"] if workload["kind"] != "training" else []
    if every_ms := workload["checkpoint_interval_ms"]:
        known.append(f"--checkpoint-interval {exact(every_ms)}")
    more = " ".join([*known, "-- COMMAND"])
    return [command.replace("-- COMMAND", more) if command.startswith("apportion submit ") else command for command in commands]


def _command(commands: list[str]) -> str:
    """Return commands in one line; of many the last, which is about the job's own budget."""
    if len(commands) <= COMMANDS_SHOWN:
        return " && ".join(commands)
    if commands[-1].startswith("apportion cancel "):
        return f"{' && '.join(commands[:COMMANDS_SHOWN])}   (and {len(commands) - COMMANDS_SHOWN} more like it, which --json has)"
    return f"{commands[-1]}   (after {len(commands) - 1} like it for its siblings, which --json has)"


def _history(parts: Parts) -> list[Section]:
    """Return what started instead, and the reasons over time."""
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
    return sections


def _spells(reasons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reasons over time, newest first, each once for as long as it held."""
    spells: list[dict[str, Any]] = []
    for row in reversed(reasons):
        if not spells or spells[-1]["reason"] != row["reason"]:
            spells.append({**row, "why": words_of("pending", str(row["reason"]), row.get("numbers") or {})[0]})
    return spells[::-1]
