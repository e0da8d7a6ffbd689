"""``what-if``: a past range again with something changed, and what that would have given whom.

It reads the logs and decides in memory, through the core that decides in production; nothing is written but the files that
``--out`` and ``--sql`` ask for. What it assumes is said under the table. ``--calibrate`` measures the tool itself on the same
range.
"""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.arguments import Mark
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.ranges import history_of
from apportion.adapters.cli.showing import counting
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.telling import refusal_words
from apportion.adapters.cli.verbs import Place, WritePlace, typed, use_kernels, verb, write_verb
from apportion.adapters.cli.writes import submit

if TYPE_CHECKING:
    from apportion.adapters.whatif.history import History
    from apportion.adapters.whatif.measures import Measured
    from apportion.adapters.whatif.playing import Change, Refused
    from apportion.adapters.whatif.tables import Worlds
    from apportion.core.engine import Core

PANEL = "Check and replay"
Asked = dict[str, Any]


def add_to(app: typer.Typer) -> None:
    """Register the verb, and below it ``submit``."""
    group = typer.Typer(rich_markup_mode=None, help=what_if.__doc__)
    group.callback(invoke_without_command=True)(_unless_below(verb(what_if)))
    group.command("submit")(write_verb(_imagined))
    app.add_typer(group, name="what-if", rich_help_panel=PANEL)


def _unless_below(command: Callable[..., int]) -> Callable[..., int | None]:
    """Return a command that leaves it to the command below it, where one is named."""

    def entered(ctx: typer.Context, **given: Any) -> int | None:
        return None if ctx.invoked_subcommand is not None else command(**given)

    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = inspect.signature(command).parameters.values()
    entered.__signature__ = inspect.Signature([context, *own])  # type: ignore[attr-defined]  # typer reads it
    entered.__annotations__ = {"ctx": typer.Context, **command.__annotations__}
    return entered


@functools.wraps(submit)
async def _imagined(place: WritePlace, **given: Any) -> Answer:
    """Look ahead: when a job would start, where, at whose cost, and who would feel it. Sends nothing."""
    return await submit(replace(place, dry_run=True), **given)


_imagined.__doc__ = "Look ahead: when a job would start, where, at whose cost, and who would feel it. Sends nothing."


def _moment(name: str, words: str) -> Any:
    return typer.Option(name, parser=typed(arguments.mark), metavar="TIME|SEQ", help=words)


async def what_if(
    place: Place,
    from_: Annotated[Mark | None, _moment("--from", "Where the range begins [default: a week before its end]")] = None,
    to: Annotated[Mark | None, _moment("--to", "Where it ends [default: the end of the log]")] = None,
    budgets: Annotated[
        Path | None,
        typer.Option("--budgets", metavar="FILE", help='Other shares: TOML, [shares] and below it "lab/llm" = "40%"; [grants] too'),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="POOL=NAME", help="Another policy, such as h100=fifo")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="POOL.RULE=VALUE", help="Another rule, such as h100.quantum_ms=30m")
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", metavar="FILE", help="Other nodes: TOML, leave = [names], [[join]] pool, nodes, gpus"),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="JOB|BUDGET", help="Without this job, or all jobs of this budget")
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--submit", metavar="JOB", help="With one more job: budget=PATH,gpus=N,runs=12h[,at=TIME][,limit=24h][,times=N]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Draw who held what, and the waits, into this folder")
    ] = None,
    sql: Annotated[
        Path | None,
        typer.Option("--sql", metavar="FILE", help="Both worlds as tables, history.* and whatif.*, in this DuckDB file"),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Change nothing; show how exactly the range comes back, and the model's error")
    ] = False,
) -> Answer:
    """Play a past range again with something changed; show who would have got what."""
    use_kernels()
    from apportion.adapters.whatif.change import ChangeRefused
    from apportion.adapters.whatif.demand import Needs
    from apportion.adapters.whatif.difference import difference
    from apportion.adapters.whatif.measures import Measures
    from apportion.adapters.whatif.playing import Play

    asked: Asked = {
        "budgets": budgets, "policy": policy or [], "set": set_ or [], "cluster": cluster, "without": without or [],
        "submit": more or [],
    }  # fmt: skip
    if sql is not None and sql.stem in ("history", "whatif"):
        raise usage(f"--sql {sql}: it has schemas of that name, so no query could tell them apart", "--sql worlds.duckdb")
    if calibrate and (any(asked.values()) or out is not None or sql is not None):
        raise usage("--calibrate changes nothing and draws nothing", "leave out the other options but --from and --to")
    if not any(asked.values()) and not calibrate:
        raise usage("nothing is changed", "name a change, such as --without lab/vision; what-if --help lists them")
    asked["texts"] = {file: _text(file) for file in (budgets, cluster) if file is not None}  # before a long range is read
    core, history, before = await history_of(place, from_, to)
    if calibrate:
        return _calibrated(place, history, before)
    needs = Needs(history.recorder)
    try:
        change = _change(core, history, needs, asked)
    except ChangeRefused as refused:
        raise usage(refused.what, refused.do) from None
    worlds = _worlds(sql) if sql is not None else None
    try:
        if worlds is not None:
            async with open_logs(place) as logs:
                await worlds.read(logs.events, logs.decisions, history.from_seq, history.to_seq)
        measures = Measures(core, history.to_ms, before.books_ms)
        keep = worlds.keep if worlds is not None else None
        with counting("playing", "cycles", quiet=place.as_json) as show:
            played = Play(history, needs, change, measures.take, keep, unwelcome=_unwelcome).run(show)
        found = difference(history, before, measures.finish(), played, needs)
        files = [] if out is None else _draw(out, found)
        answer = _answer(found, history, files)
        if worlds is not None:
            tables = worlds.write(change.words)
            answer.document["sql"] = {"file": str(sql), "tables": tables}
            answer.after.append(f"tables history.* and whatif.* in {sql}: apportion sql --history {sql}")
        return answer
    finally:
        if worlds is not None:
            worlds.close()


def _worlds(sql: Path) -> Worlds:
    """Return the tables to be, in a folder that can be written to."""
    from apportion.adapters.whatif.tables import Worlds

    try:
        sql.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=sql.parent):
            return Worlds(sql)
    except OSError as error:
        raise usage(f"--sql {sql}: {error.strerror or error}", "name a file in a folder that can be written to") from error


def _unwelcome(refused: Refused) -> None:
    """Stop: the core refuses the change itself, so there is nothing to compare."""
    import msgspec

    decision = msgspec.to_builtins(refused)
    what, do = refusal_words(decision)
    raise Failure(FAILED, f"the core refuses the change ({_named(decision)}): {what}", do, decision=decision)


def _named(decision: dict[str, Any]) -> str:
    """Return which event of the change it is."""
    kind = str(decision.get("event_type") or "workload.submitted")
    about = str(decision.get("workload") or decision.get("entity") or "")
    return f"{kind} of {about}" if about else kind


def _calibrated(place: Place, history: History, before: Measured) -> Answer:
    from apportion.adapters.whatif import report
    from apportion.adapters.whatif.calibration import calibrate, document

    with counting("playing", "cycles", quiet=place.as_json) as show:
        found = calibrate(history, before, show)
    return Answer(
        lines=report.calibration(found), document={**document(found), "from_seq": history.from_seq, "to_seq": history.to_seq},
        as_of=AsOf(history.to_seq, history.to_ms), code=FAILED if found.exact.differing else 0,
    )  # fmt: skip


def _change(core: Core, history: History, needs: Any, asked: Asked) -> Change:
    from apportion.adapters.whatif import change, spec

    units = spec.Units(
        arguments.duration_ms, arguments.share_ppm, arguments.instant_ms, arguments.gpus_milli, arguments.gpu_hours_us
    )
    changes: list[Change] = []
    if asked["budgets"] is not None:
        wishes = spec.budgets(asked["texts"][asked["budgets"]], str(asked["budgets"]), core, units)
        changes.append(change.budgets(core, history, wishes, str(asked["budgets"])))
    for text in asked["policy"]:
        pool, name = _sides(text, "--policy", "POOL=NAME, such as h100=fifo")
        changes.append(change.policy(core, history, pool, {"policy": name}))
    for text in asked["set"]:
        left, value = _sides(text, "--set", "POOL.RULE=VALUE, such as h100.quantum_ms=30m")
        pool, _, rule = left.rpartition(".")
        if not pool or not rule:
            raise usage(f"--set {text!r} names no pool and rule", "write --set POOL.RULE=VALUE, such as h100.quantum_ms=30m")
        changes.append(change.policy(core, history, pool, {rule: _value(rule, value)}))
    if asked["cluster"] is not None:
        joining, leaving = spec.cluster(asked["texts"][asked["cluster"]], str(asked["cluster"]), units)
        changes.append(change.cluster(core, history, joining, leaving))
    changes += [change.without(core, history, name) for name in asked["without"]]
    extras = [extra for number, text in enumerate(asked["submit"], 1) for extra in spec.job(text, number, core, units)]
    if extras:
        changes.append(change.submitted(core, history, needs, extras))
    return change.joined(changes)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read {file}: {getattr(error, 'strerror', None) or error}", "name a text file") from None


def _sides(text: str, option: str, example: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left or not right:
        raise usage(f"{option} {text!r} is not understood", f"write {option} {example}")
    return left.strip(), right.strip()


def _value(rule: str, text: str) -> int | str:
    readers: dict[str, Callable[[str], int]] = {
        "_ms": arguments.duration_ms, "_ppm": arguments.share_ppm, "_milli": arguments.gpus_milli
    }  # fmt: skip
    try:
        for ending, read in readers.items():
            if rule.endswith(ending):
                return read(text)
    except ValueError as error:
        raise usage(f"--set {rule}={text}: {error}") from None
    try:
        return int(text)
    except ValueError:
        return text


def _answer(found: Any, history: History, files: list[str]) -> Answer:
    from apportion.adapters.whatif import report
    from apportion.adapters.whatif.difference import document

    rows = report.budget_rows(found)
    headings = {"change": "GPU-h +-", "preempted": "preempted", "wait_p50": "wait p50", "wait_p90": "wait p90",
                "funded": "funded GPU-h", "unfunded": "unfunded GPU-h"}  # fmt: skip
    columns = ["budget", "funded", "unfunded", "change", "starts", "ended", "preempted", "wait_p50", "wait_p90"]
    sections = [
        Section(
            rows, columns, key="budgets", title="history -> what if", headings=headings, total=report.total_row(found), raw=True,
            after=[*report.totals(found), *report.assumptions(found)], drop=("ended", "wait_p90", "preempted", "starts"),
        ),
        Section(
            report.moved_rows(found), ["workload", "budget", "gpus_milli", "start", "end"], key="moved",
            title=f"jobs that moved most, of {len(found.moved):,} that moved by a minute or more", headings={"gpus_milli": "GPUs"},
            empty="no job moved",
        ),
    ]  # fmt: skip
    after = [f"drawn: {', '.join(files)}"] if files else []
    whole = {**document(found), "from_seq": history.from_seq, "to_seq": history.to_seq, "files": files}
    return Answer(sections, report.headline(found), after=after, document=whole, as_of=AsOf(history.to_seq, history.to_ms))


def _draw(folder: Path, found: Any) -> list[str]:
    from apportion.adapters.whatif import charts

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in charts.PICTURES.items():
            (folder / name).write_text(draw(found), encoding="utf-8")
    except OSError as error:
        raise usage(f"--out {folder}: {error.strerror or error}", "name a folder that can be written to") from error
    return [str(folder / name) for name in charts.PICTURES]


