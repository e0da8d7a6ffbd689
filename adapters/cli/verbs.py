"""The options that every verb has, and the two wrappers that turn a small async function into a command.

``verb`` gives ``--dir``, ``--server`` and ``--json``; ``read_verb`` adds CSV, fields, as-of and staleness; ``write_verb``
adds who acts, why, dry run and detaching. A wrapped function takes its place first (where, how, as of when) and then its
own arguments, and returns an ``Answer``; the wrapper prints it and returns the exit code.
"""

from __future__ import annotations

import getpass
import inspect
import os
import sys
import typing
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.failure import OK, STALE, Failure, usage
from apportion.adapters.cli.output import Answer, Format, show
from apportion.adapters.processes.home import Home
from apportion.adapters.text import render

T = TypeVar("T")


def typed(parse: Callable[[str], T]) -> Callable[[Any], T]:
    """Return ``parse`` as an option parser: its ``ValueError`` becomes the usage error's text, unchanged."""

    def parser(text: Any) -> T:
        if not isinstance(text, str):  # a default, already in the core's unit
            return typing.cast("T", text)
        try:
            return parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    parser.__name__ = parse.__name__
    return parser


def lasting(text: str, default: str = "") -> Any:
    """Return an option that takes a duration; ``text`` is its help, ``default`` what it is shown to be without it."""
    shown = f"{text} [default: {default}]" if default else text
    return typer.Option(parser=typed(arguments.duration_ms), metavar="DURATION", help=shown, show_default=False)


def whole(at_least: int | None = None, at_most: int | None = None) -> Callable[[Any], int]:
    """Return a parser of whole numbers within bounds."""

    def whole_number(text: str) -> int:
        return arguments.whole_number(text, at_least, at_most)

    return typed(whole_number)


def one_of(*known: str) -> Callable[[Any], str]:
    """Return a parser of one of the known words."""

    def word(text: str) -> str:
        return arguments.word_of(text, known)

    return typed(word)


def moment(text: str, *names: str) -> Any:
    """Return an option that takes an instant; ``text`` is its help."""
    return typer.Option(*names, parser=typed(arguments.instant_ms), metavar="TIME", help=text)


@dataclass(frozen=True)
class Place:
    """Where a command acts and how it prints."""

    home: Home
    server: str = ""
    form: Format = field(default_factory=Format)

    @property
    def as_json(self) -> bool:
        """Tell whether stdout carries one JSON document."""
        return self.form.as_json


@dataclass(frozen=True)
class ReadPlace(Place):
    """A place to read: as of when, and how stale it may be."""

    at_ms: int | None = None
    seq: int | None = None
    max_lag_s: float | None = None


@dataclass(frozen=True)
class WritePlace(Place):
    """A place to write: who acts, why, and how long to wait for the decision."""

    principal: str = ""
    reason: str = ""
    dry_run: bool = False
    detach: bool = False
    timeout_ms: int = 30_000


Verb = Callable[..., Answer | Coroutine[Any, Any, Answer]]

_DIR = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The installation's directory [default: $APPORTION_DIR or .apportion]"),
]
_SERVER = Annotated[
    str,
    typer.Option("--server", metavar="URL", help="NATS server to ask, instead of the one of --dir [$APPORTION_SERVER]"),
]
_JSON = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; errors as JSON on stderr")]
_CSV = Annotated[bool, typer.Option("--csv", help="The rows as CSV, integers as stored")]
_ONLY = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", metavar="FIELDS", help="Only these fields, such as -o workload,state"),
]
_AT = Annotated[
    int | None,
    typer.Option(
        "--at", parser=typed(arguments.instant_ms), metavar="TIME", help="As it was then: 2026-01-02T15:04 (UTC)"
    ),
]
_SEQ = Annotated[
    int | None, typer.Option("--seq", parser=whole(0), metavar="N", help="As it was after record N of the log")
]
_MAX_LAG = Annotated[
    float | None,
    typer.Option("--max-lag", min=0, metavar="SECONDS", help="Exit with 4 when the data is further behind than this"),
]
_AS = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="NAME", help="Act as this principal [default: $APPORTION_PRINCIPAL or your user name]"
    ),
]
_REASON = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the event")]
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Show the event and what is known now; publish nothing")]
_DETACH = Annotated[bool, typer.Option("--detach", help="Return when the log has the event, without the decision")]
_TIMEOUT = Annotated[
    int,
    typer.Option(
        "--timeout",
        parser=typed(arguments.duration_ms),
        metavar="DURATION",
        show_default=False,
        help="How long to wait for the decision [default: 30s]",
    ),
]

PLACE_OPTIONS: dict[str, tuple[Any, Any]] = {"dir_": (_DIR, None), "server": (_SERVER, ""), "json_": (_JSON, False)}
_READ_OPTIONS: dict[str, tuple[Any, Any]] = {
    "csv_": (_CSV, False), "only": (_ONLY, None), "at": (_AT, None), "seq": (_SEQ, None), "max_lag": (_MAX_LAG, None)
}  # fmt: skip
_WRITE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "as_": (_AS, None), "reason": (_REASON, ""), "dry_run": (_DRY_RUN, False), "detach": (_DETACH, False),
    "timeout": (_TIMEOUT, 30_000),
}  # fmt: skip


def use_kernels() -> None:
    """Prepare this process for the core's kernels; called before anything imports numba, and only by verbs that need it."""
    from apportion.adapters.processes.build import keep_kernels_apart

    keep_kernels_apart()


def principal_now(given: str | None) -> str:
    """Return who acts: ``--as``, else ``$APPORTION_PRINCIPAL``, else the user's name made fit for a subject."""
    named = given or os.environ.get("APPORTION_PRINCIPAL")
    if named:
        try:
            return arguments.checked_principal(named)
        except ValueError as error:
            raise usage(str(error)) from None
    try:
        return arguments.principal_of(getpass.getuser())
    except (OSError, KeyError):
        return arguments.principal_of(f"uid-{os.getuid()}")


def server_now(given: str) -> str:
    """Return the server to ask: ``--server``, else ``$APPORTION_SERVER``, else none (the one of the directory)."""
    return given or os.environ.get("APPORTION_SERVER", "")


def _format(options: dict[str, Any]) -> Format:
    only: list[str] = []
    for text in options.get("only") or []:
        try:
            only += arguments.fields(text)
        except ValueError as error:
            raise usage(str(error)) from None
    return Format(bool(options.get("json_")), bool(options.get("csv_")), tuple(only))


def _place(options: dict[str, Any]) -> Place:
    return Place(*where(options))


def where(options: dict[str, Any]) -> tuple[Home, str, Format]:
    """Return what ``PLACE_OPTIONS`` say."""
    return Home.of(options["dir_"]), server_now(options["server"]), _format(options)


def _read_place(options: dict[str, Any]) -> ReadPlace:
    if options["at"] is not None and options["seq"] is not None:
        raise usage("--at and --seq cannot both be given", "choose one of them")
    return ReadPlace(*where(options), at_ms=options["at"], seq=options["seq"], max_lag_s=options["max_lag"])


def _write_place(options: dict[str, Any]) -> WritePlace:
    return WritePlace(
        *where(options),
        principal=principal_now(options["as_"]),
        reason=options["reason"],
        dry_run=options["dry_run"],
        detach=options["detach"],
        timeout_ms=options["timeout"],
    )


def command_of(
    function: Verb, options: dict[str, tuple[Any, Any]], make_place: Callable[[dict[str, Any]], Place]
) -> Callable[..., int]:
    """Return a command whose parameters are the function's own, without its place, and then ``options``."""
    hints = typing.get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    own_names = {parameter.name for parameter in own}
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]

    def command(**given: Any) -> int:
        from apportion.adapters.cli import interrupting

        place = make_place(given)
        answer = function(place, **{name: given[name] for name in own_names})
        return finish(answer if isinstance(answer, Answer) else interrupting.run(answer), place)

    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads it
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + common
    )
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in own + common}
    return command


def verb(function: Verb) -> Callable[..., int]:
    """Return the function as a command with ``--dir``, ``--server`` and ``--json``."""
    return command_of(function, PLACE_OPTIONS, _place)


def read_verb(function: Verb) -> Callable[..., int]:
    """Return the function as a read: CSV, fields, ``--at`` or ``--seq``, and ``--max-lag``."""
    return command_of(function, {**PLACE_OPTIONS, **_READ_OPTIONS}, _read_place)


def table_verb(function: Verb) -> Callable[..., int]:
    """Return the function as a command with a table: CSV and fields, but no other moment than the data's own."""
    options = {name: _READ_OPTIONS[name] for name in ("csv_", "only")}
    return command_of(function, {**PLACE_OPTIONS, **options}, _place)


def write_verb(function: Verb) -> Callable[..., int]:
    """Return the function as a write: who acts, why, dry run, detach, timeout."""
    return command_of(function, {**PLACE_OPTIONS, **_WRITE_OPTIONS}, _write_place)


def finish(answer: Answer, place: Place) -> int:
    """Print the answer and return the exit code; 4 when a read is further behind than ``--max-lag``."""
    try:
        show(answer, place.form)
    except BrokenPipeError:
        silence_stdout()
        return answer.code
    if isinstance(place, ReadPlace) and place.max_lag_s is not None and answer.as_of is not None:
        behind_s = answer.as_of.lag_ms / 1000
        if answer.as_of.lag and behind_s > place.max_lag_s:
            raise Failure(
                STALE,
                f"the data is {behind_s:.1f} s ({render.many(answer.as_of.lag, 'record')}) behind the log, above --max-lag "
                f"{place.max_lag_s:g}",
                "wait for the projector, or look at it with `apportion doctor`",
                as_of=answer.as_of.document(),
            )
    return answer.code or OK


def silence_stdout() -> None:
    """Point stdout at nothing: its reader is gone, and the interpreter must not complain about it at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
