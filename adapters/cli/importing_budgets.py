"""The verb import budgets: another scheduler's share tree, shown as budgets, and made when asked to.

Shows first: the tree as understood, what cannot be said in budgets with its line, and the commands that would make it. Only
``--apply`` publishes, one event after the other, and stops at the first refusal, saying what was made by then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.deciding import send
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.finding import one_pool
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import WritePlace, one_of
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.imports.budgets.tree import Line, Tree

_OPTIONS = {"budget": "the budget", "share_ppm": "its share", "pool": "--pool", "member": "the member"}


async def budgets(
    place: WritePlace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="sacctmgr dump, fair-scheduler.xml, Kueue or KAI YAML")],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            parser=one_of("slurm", "yarn", "kueue", "kai"),
            metavar="FORMAT",
            help="slurm, yarn, kueue or kai [default: seen from the file]",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            parser=one_of("auto", "weight", "quota"),
            metavar="BASIS",
            help="Shares by weight, by guaranteed GPUs, or GPUs where stated: auto",
        ),
    ] = "auto",
    under: Annotated[
        str, typer.Option("--under", metavar="BUDGET", help="Put the tree below this budget, which must be there")
    ] = "",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="Pool [default: the only one]")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Make the budgets; without it nothing is published")] = False,
) -> Answer:
    """Show another scheduler's share tree as budgets; --apply makes them."""
    from apportion.adapters.imports.budgets import formats
    from apportion.adapters.imports.budgets.tree import BadTree, commands, lines

    if apply and place.dry_run:
        raise usage("--apply and --dry-run cannot both be given", "without --apply nothing is published")
    try:
        tree = formats.parse(_text(file), from_ or "", by)
        found = lines(tree, under)
    except BadTree as error:
        raise Failure(2, f"{file}: {error}", error.do, line=error.line) from None
    typed = commands(found, pool)
    if apply:
        return await _apply(place, file, tree, found, pool)
    return _shown(file, tree, found, typed)


def _text(file: Path) -> str:
    from apportion.adapters.imports.budgets.formats import MAX_BYTES

    try:
        if file.stat().st_size > MAX_BYTES:
            raise usage(f"{file} is larger than {MAX_BYTES:,} bytes, so it is no share tree")
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise usage(f"{file}: {error.strerror or error}", "name a file that can be read") from None
    except UnicodeDecodeError as error:
        raise usage(f"{file} is no text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None


def _shown(file: Path, tree: Tree, found: list[Line], typed: list[str], **more: Any) -> Answer:
    rows: list[dict[str, Any]] = [
        {"budget": line.path, "share_ppm": line.share_ppm, "weight": str(line.weight.normalize()), "basis": line.basis,
         "line": line.line,
         "users": line.users or "", "members": [member.name for member in line.members]}
        for line in found
    ]  # fmt: skip
    shown = [
        {
            **row,
            "budget": _indented(row["budget"]),
            "weight": _plain(row["weight"]),
            "members": ", ".join(dict.fromkeys(row["members"])),
        }
        for row in rows
    ]
    notes: list[dict[str, Any]] = [{"line": note.line, "what": note.what} for note in sorted(tree.notes)]
    columns = ["budget", "share_ppm", "weight", "basis", "users", "members", "line"]
    columns = [name for name in columns if name not in ("users", "members") or any(row[name] for row in rows)]
    sections = [
        Section(rows, columns, key="budgets", shown=shown, headings={"share_ppm": "share"},
                flexible="members" if "members" in columns else "",
                empty="the file has no queue that a budget could stand for"),
    ]  # fmt: skip
    if notes:
        sections.append(Section(notes, ["line", "what"], key="notes", title="what budgets cannot say"))
    after = [*typed, "", "nothing was published; --apply makes these budgets"] if typed else []
    noted = f", {render.many(len(notes), 'note')}" if notes else ""
    lines = [f"{file.name}: {tree.form}, {render.many(len(found), 'budget')}{noted}"]
    return Answer(
        sections, lines=lines, after=after, more={"format": tree.form, "commands": typed, "applied": 0, **more}
    )


async def _apply(place: WritePlace, file: Path, tree: Tree, found: list[Line], pool: str) -> Answer:
    from apportion.adapters.imports.budgets.tree import events

    made: list[str] = []
    async with opened(place) as source:
        for event in events(found, await one_pool(source, pool)):
            name = f"{getattr(event, 'budget', '')} {getattr(event, 'member', '')}".strip()
            outcome = await send(source, place, event, _OPTIONS)
            if outcome.refusal is not None:
                try:
                    outcome.answer(subject=name)
                except Failure as refused:
                    raise Failure(
                        FAILED, f"{refused.what}; made before it: {', '.join(made) or 'nothing'}", refused.do, made=made
                    ) from None
            made.append(name)
    answer = _shown(file, tree, found, [])
    answer.lines.append(f"{render.many(len(made), 'event was', 'events were')} published: budgets and members are made")
    answer.more["applied"] = len(made)
    return answer


def _indented(path: str) -> str:
    depth = path.count("/")
    return "  " * depth + path.rsplit("/", 1)[-1]


def _plain(weight: str) -> str:
    from decimal import Decimal

    return render.clean(f"{Decimal(weight):f}")
