"""``query``: any of the named questions with its parameters, as a table, JSON, CSV or a Parquet file.

Without a name it lists the questions; ``--about`` tells what one of them takes. Which questions there are, and their SQL, is
``projections.queries``: nothing is asked here that the projector would not answer anyone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.asking import Opened, Reply, opened
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import nearest, node_of, one_pool, pools_of, workload_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.projections.queries import Parameter, Query

PARQUET = Annotated[
    Path | None, typer.Option("--parquet", metavar="FILE", help="Write the rows into this Parquet file too")
]
_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_SAMPLES = {"workload": "JOB", "budget": "lab/llm", "pool": "h100", "event_seq": "1000", "known_seq": "1000"}
_INSTANTS = ("since_ms", "until_ms", "from_ms", "to_ms")


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("query", rich_help_panel="Look")(read_verb(query))


async def query(
    place: ReadPlace,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Which question; without it they are listed", show_default=False)
    ] = "",
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PARAM=VALUE]...", help="Such as budget=lab/llm since=2026-01-02", show_default=False),
    ] = None,
    about: Annotated[bool, typer.Option("--about", help="Only tell what the question takes")] = False,
    parquet: PARQUET = None,
) -> Answer:
    """Ask the projection one of its named questions."""
    from apportion.projections.queries import catalog

    known = catalog()
    if not name:
        rows = [{"query": one.name, "question": one.question} for one in known.values()]
        after = ["apportion query NAME --about    tells what a question takes, with an example"]
        return Answer([Section(rows, ["query", "question"], key="queries")], after=after)
    if name not in known:
        raise nearest(name, known, "question", "`apportion query` lists them")
    asked = known[name]
    if about:
        return _about(asked)
    params = dict(_value(asked, text) for text in given or [])
    _missing(asked, params)
    _in_order(params)
    async with opened(place) as source:
        reply = await source.ask(name, **params)
        if not reply.rows:
            await _check_names(source, params)
    documents = [name for name in reply.columns if any(isinstance(row[name], dict) for row in reply.rows)]
    after = [f"not in the table: {', '.join(documents)}; --json, --csv or -o {','.join(documents)} shows it"] if documents else []
    after += [save_parquet(parquet, reply)] if parquet is not None else []
    more = {"query": name, "question": asked.question, "parameters": params}
    columns = [name for name in reply.columns if name not in documents or place.form.only]
    section = Section(reply.rows, columns, empty="no rows")
    return Answer([section], after=after, more=more, as_of=reply.as_of)


def save_parquet(path: Path, reply: Reply) -> str:
    """Write a reply's rows into a Parquet file; return the sentence that says so. Raises ``Failure`` (2)."""
    from apportion.adapters.projector.formats import guessed_types, write_parquet

    types = list(reply.more.get("types") or guessed_types(reply.columns, reply.rows))
    try:
        written = write_parquet(path, reply.columns, types, reply.rows)
    except OSError as error:
        raise usage(f"cannot write {path}: {error.strerror}", "choose another file with --parquet") from None
    return f"written to {path}: {render.many(len(reply.rows), 'row')}, {written:,} bytes"


def _about(asked: Query) -> Answer:
    rows = [
        {
            "parameter": one.name,
            "type": one.kind,
            "default": "must be given" if one.required else "-" if one.default is None else str(one.default),
            "meaning": one.meaning or ("an instant, such as 2026-01-02T15:04" if one.name in _INSTANTS else ""),
        }
        for one in asked.parameters.values()
    ]
    section = Section(rows, ["parameter", "type", "default", "meaning"], key="parameters", empty="it takes no parameters")
    required = [f"{one.name}={_sample(one)}" for one in asked.parameters.values() if one.required]
    example = " ".join(["apportion query", asked.name, *required])
    return Answer(
        [section], [asked.question], after=[f"example: {example}", "--at TIME and --seq N ask for an earlier moment"],
        more={"query": asked.name, "question": asked.question, "example": example},
    )  # fmt: skip


def _sample(parameter: Parameter) -> str:
    if parameter.name in _INSTANTS:
        return "2026-01-02" if parameter.name in ("since_ms", "from_ms") else "2026-01-03"
    return _SAMPLES.get(parameter.name, "1" if parameter.kind == "bigint" else "TEXT")


def _value(asked: Query, text: str) -> tuple[str, Any]:
    """Return one parameter as it was typed, in its type. Times may be instants, spans durations; raises ``Failure`` (2)."""
    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    parameter = asked.parameters.get(name) or asked.parameters.get(f"{name}_ms")
    if not equals:
        raise usage(f"{text!r} is no PARAM=VALUE", f"`apportion query {asked.name} --about` tells what it takes")
    if asked.name == "usage" and name == "by":
        return name, value
    if parameter is None:
        raise nearest(name, asked.parameters, "parameter", f"`apportion query {asked.name} --about` tells what it takes")
    try:
        return parameter.name, _typed(parameter, name, value)
    except ValueError as error:
        raise usage(f"{parameter.name}={value}: {error}", f"`apportion query {asked.name} --about` tells what it takes") from None


def _typed(parameter: Parameter, name: str, value: str) -> Any:
    """Return a value in its type; a plain number is milliseconds only where the name that was typed says so."""
    if parameter.kind == "varchar":
        return value
    if parameter.kind == "boolean":
        if value.lower() not in _WORDS:
            raise ValueError("it is true or false")
        return _WORDS[value.lower()]
    if parameter.name in _INSTANTS and value != "0":
        return arguments.instant_ms(value)
    if parameter.name.endswith("_ms") and (name != parameter.name or not value.isdecimal()):
        return arguments.duration_ms(value)
    return arguments.whole_number(value, -(1 << 63), (1 << 63) - 1)


def _in_order(params: dict[str, Any]) -> None:
    """Raise ``Failure`` (2) for a span that ends before it begins."""
    for first, last in (("since_ms", "until_ms"), ("from_ms", "to_ms")):
        begin_ms, end_ms = params.get(first), params.get(last)
        if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
            begin, end = first.removesuffix("_ms"), last.removesuffix("_ms")
            raise usage(
                f"{begin} {render.when(begin_ms)} is not before {end} {render.when(end_ms)}",
                f"the span is from {begin} on, up to {end} and without it",
            )


async def _check_names(source: Opened, params: dict[str, Any]) -> None:
    """Raise ``Failure`` (2) where nothing was found because what is named is not there."""
    if budget := params.get("budget"):
        await pools_of(source, budget)
    if pool := params.get("pool"):
        await one_pool(source, pool)
    if node := params.get("node"):
        await node_of(source, node)
    if workload := params.get("workload"):
        await workload_of(source, workload)


def _missing(asked: Query, params: dict[str, Any]) -> None:
    wanted = [one.name for one in asked.parameters.values() if one.required and one.name not in params]
    if wanted:
        raise usage(
            f"{asked.name} needs {', '.join(wanted)}",
            " ".join(["apportion query", asked.name, *(f"{name}={_sample(asked.parameters[name])}" for name in wanted)]),
        )
