"""``what-if``: a past range again with something changed, and what that would have given whom.

It reads the logs and decides in memory, through the core that decides in production; nothing is written but the files that
``--out`` and ``--sql`` ask for. What it assumes is said under the table. ``--calibrate`` measures the tool itself on the same
range.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.cores import core_in
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.showing import counting
from apportion.adapters.cli.stores import Logs, open_logs
from apportion.adapters.cli.verbs import Place, WritePlace, typed, use_kernels, verb, write_verb
from apportion.adapters.cli.writes import submit

if TYPE_CHECKING:
    from apportion.adapters.whatif.history import History
    from apportion.adapters.whatif.measures import Measured
    from apportion.adapters.whatif.playing import Change
    from apportion.adapters.whatif.tables import Worlds
    from apportion.core.engine import Core

PANEL = "Check and replay"
WEEK_MS = 7 * 86_400_000
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


def _seq_or_time(text: str) -> int:
    """Return a sequence as it is, and an instant as its negative in milliseconds."""
    compact = text.strip().replace(",", "").replace("_", "")
    if compact.isdigit() and len(compact) < 9:
        return int(compact)
    return -arguments.instant_ms(text)


def _moment(name: str, words: str) -> Any:
    return typer.Option(name, parser=typed(_seq_or_time), metavar="TIME|SEQ", help=words)


async def what_if(
    place: Place,
    from_: Annotated[int | None, _moment("--from", "Where the range begins [default: a week before its end]")] = None,
    to: Annotated[int | None, _moment("--to", "Where it ends [default: the end of the log]")] = None,
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
    core, history, before = await _history(place, from_, to)
    if calibrate:
        return _calibrated(place, history, before)
    needs = Needs(history.recorder)
    try:
        change = _change(core, history, needs, asked)
    except ChangeRefused as refused:
        raise usage(refused.what, refused.do) from None
    worlds = await _projected(place, sql, history) if sql is not None else None
    measures = Measures(core, history.to_ms)
    with counting("playing", "cycles", quiet=place.as_json) as show:
        play = Play(history, needs, change, measures.take, worlds.keep if worlds is not None else None)
        played = play.run(show)
    found = difference(history, before, measures.finish(), played, needs)
    files = [] if out is None else _draw(out, found)
    answer = _answer(found, history, files)
    if worlds is not None:
        tables = worlds.write(change.words)
        answer.document["sql"] = {"file": str(sql), "tables": tables}
        answer.after.append(f"tables history.* and whatif.* in {sql}: apportion sql --history {sql}")
    return answer


async def _projected(place: Place, sql: Path, history: History) -> Worlds:
    from apportion.adapters.whatif.tables import Worlds

    try:
        sql.parent.mkdir(parents=True, exist_ok=True)
        worlds = Worlds(sql)
        async with open_logs(place) as logs:
            await worlds.read(logs.events, logs.decisions, history.from_seq, history.to_seq)
    except OSError as error:
        raise usage(f"--sql {sql}: {error.strerror or error}", "name a file in a folder that can be written to") from error
    return worlds


def _calibrated(place: Place, history: History, before: Measured) -> Answer:
    from apportion.adapters.whatif import report
    from apportion.adapters.whatif.calibration import calibrate, document

    with counting("playing", "cycles", quiet=place.as_json) as show:
        found = calibrate(history, before, show)
    return Answer(
        lines=report.calibration(found), document={**document(found), "from_seq": history.from_seq, "to_seq": history.to_seq},
        as_of=AsOf(history.to_seq, history.to_ms), code=FAILED if found.exact.differing else 0,
    )  # fmt: skip


async def _history(place: Place, from_: int | None, to: int | None) -> tuple[Core, History, Measured]:
    """Read the range. Raises ``Failure`` when there is none."""
    from apportion.adapters.whatif.reading import read

    async with open_logs(place) as logs:
        from_seq, to_seq = await _range(logs, from_, to)
        core = await core_in(place, logs, from_seq)
        with counting("reading", "records", quiet=place.as_json) as show:
            history, before = await read(core, logs.events, logs.decisions, to_seq, show)
    if not history.cycles:
        raise Failure(FAILED, "nothing was decided in this range", "name a longer one with --from and --to")
    return core, history, before


async def _range(logs: Logs, from_: int | None, to: int | None) -> tuple[int, int]:
    from apportion.adapters.whatif.reading import first_cycle, is_stated, seq_at

    last_seq, first_seq = await logs.events.last_seq(), await first_cycle(logs.decisions)
    if not first_seq:
        raise Failure(
            FAILED, "nothing has been decided in this log", "`apportion up` starts a cluster, `apportion demo` a simulated one"
        )
    stated = await is_stated(logs.events)

    async def resolved(value: int) -> int:
        return value if value >= 0 else await seq_at(logs.events, -value, stated=stated)

    to_seq = min(last_seq, await resolved(to)) if to is not None else last_seq
    if from_ is None:
        record = (await logs.events.read(to_seq - 1, 1))[0]
        from apportion.core.envelope import decode_envelope

        end_ms = decode_envelope(record.body).at_ms if stated else record.stored_ms
        from_ = -max(1, end_ms - WEEK_MS)
    from_seq = max(first_seq, await resolved(from_))
    if from_seq >= to_seq:
        raise usage(
            f"the range from seq {from_seq:,} to {to_seq:,} is empty; the log has records 1 to {last_seq:,}", "see --from and --to"
        )
    return from_seq, to_seq


def _change(core: Core, history: History, needs: Any, asked: Asked) -> Change:
    from apportion.adapters.whatif import change, spec

    units = spec.Units(
        arguments.duration_ms, arguments.share_ppm, arguments.instant_ms, arguments.gpus_milli, arguments.gpu_hours_us
    )
    changes: list[Change] = []
    if asked["budgets"] is not None:
        wishes = spec.budgets(_text(asked["budgets"]), str(asked["budgets"]), core, units)
        changes.append(change.budgets(core, history, wishes, str(asked["budgets"])))
    for text in asked["policy"]:
        pool, name = _sides(text, "--policy", "POOL=NAME, such as h100=fifo")
        changes.append(change.policy(core, history, pool, {"policy": name}))
    for text in asked["set"]:
        left, value = _sides(text, "--set", "POOL.RULE=VALUE, such as h100.quantum_ms=30m")
        pool, _, rule = left.rpartition(".")
        changes.append(change.policy(core, history, pool, {rule: _value(rule, value)}))
    if asked["cluster"] is not None:
        joining, leaving = spec.cluster(_text(asked["cluster"]), str(asked["cluster"]), units)
        changes.append(change.cluster(core, history, joining, leaving))
    changes += [change.without(core, history, name) for name in asked["without"]]
    extras = [extra for number, text in enumerate(asked["submit"], 1) for extra in spec.job(text, number, core, units)]
    if extras:
        changes.append(change.submitted(core, needs, extras))
    return change.joined(changes)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
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
    return int(text) if text.lstrip("-").isdigit() else text


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
            after=[*report.totals(found), *report.assumptions(found)],
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


