"""The verb that tells one cycle: what was known, what was decided, what changed by it, and that it derives to the same bytes.

Everything comes from the two logs and the core; the words are those of ``telling``. A cycle that is derived otherwise exits with 1
and shows both sides. It reads, and works with the server stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.proving import difference_lines, snapshot_directories
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.verbs import Place, use_kernels, verb, whole
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.seen.cycle import Told

PANEL = "Look"
SHOWN = 20
KINDS = {  # of decisions, in the order in which they are told
    "run.placed": "started", "run.preempted": "preempted", "run.moved": "moved", "run.drained": "asked to leave a drained node",
    "run.cancelled": "stopped by wish", "run.retired": "retired", "gpus.reserved": "GPUs held or given up",
    "moves.proposed": "moves proposed", "run.closed": "run over", "workload.closed": "workload over",
    "workload.admitted": "admitted", "workload.rejected": "submission refused", "rejected": "input refused",
    "funding.changed": "payer changed", "grant.issued": "grant issued", "service.resized": "service resized",
    "run.idle": "does no work", "node.suspended": "node suspended", "plan.published": "plan published",
    "pending.explained": "reason to wait is new",
}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("cycle", rich_help_panel=PANEL)(verb(cycle))


async def cycle(
    place: Place,
    number: Annotated[str, typer.Argument(metavar="N", help="Which cycle [default: the last]")] = "",
    seq: Annotated[
        int | None, typer.Option("--seq", parser=whole(1), metavar="S", help="The first one decided at or after record S")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(0), metavar="N", help="Rows of a list; 0 for all")
    ] = SHOWN,
) -> Answer:
    """Tell one cycle: what was known, what was decided, what changed; and derive it again."""
    wanted = _number(number)
    if wanted is not None and seq is not None:
        raise usage("a cycle's number and --seq cannot both be given", "choose one of them")
    use_kernels()
    from apportion.adapters.proving.waypoints import Foreign, newest
    from apportion.adapters.seen.cycle import NoSuchCycle, cycle_of

    async with open_logs(place) as logs:
        find = partial(newest, logs.events, snapshot_directories(place))
        try:
            with progress("cycle", quiet=place.as_json) as show:
                told = await cycle_of(logs.events, logs.decisions, wanted, seq, find, show)
        except NoSuchCycle as error:
            raise usage(str(error), "`apportion cycle` tells the last one") from None
        except Foreign as error:
            raise Failure(FAILED, str(error), "move that snapshot away") from None
    return answer_of(told, limit)


def _number(text: str) -> int | None:
    from apportion.adapters.cli import arguments

    if not text:
        return None
    try:
        return arguments.whole_number(text, 1)
    except ValueError as error:
        raise usage(f"{error}", "write a cycle's number, such as `apportion cycle 1200`, or --seq S") from None


def answer_of(told: Told, limit: int) -> Answer:
    """Return a cycle as an answer."""
    import msgspec

    from apportion.adapters.cli.events import document_of

    batch = told.batch
    decided = [_decision(decision, batch.time_ms) for decision in msgspec.to_builtins(batch.decisions)]
    same = told.difference is None
    document = {
        "cycle": batch.cycle, "seq": batch.seq, "time_ms": batch.time_ms, "core": batch.core,
        "known": {
            "from_seq": told.before.seq + 1 if told.before is not None else 1, "to_seq": batch.seq,
            "records": sum(told.counts.values()), "by_type": told.counts,
            "listed": [document_of(record, told.stated) for record in told.records],
        },
        "before": {
            "cycle": batch.cycle - 1, "seq": told.before.seq if told.before is not None else 0,
            "time_ms": told.before.time_ms if told.before is not None else 0,
            "digest": told.digest_before, "chain": told.chain_before,
        },
        "decided": {"by_type": _counted(decided), "decisions": decided},
        "changed": {"pools": told.pools, "budgets": told.budgets},
        "after": {"digest": batch.digest, "chain": batch.chain, "books": msgspec.to_builtins(batch.books)},
        "derived_again": {
            "same": same, "bytes": told.bytes, "first_difference": told.difference,
            "begun_seq": told.begun_seq, "begun_from": told.begun_from,
        },
        "previous": batch.cycle - 1 or None,
        "next": batch.cycle + 1 if batch.cycle < told.last_cycle else None,
    }  # fmt: skip
    lines = [*_known(told, limit), "", *_decided(decided, limit), ""]
    return Answer(
        _changed(told, limit), lines, _after(told), document=document, as_of=AsOf(batch.seq, batch.time_ms),
        code=0 if same else FAILED,
    )  # fmt: skip


def _decision(decision: Mapping[str, Any], time_ms: int) -> dict[str, Any]:
    return {**decision, "time_ms": time_ms}


def _counted(decided: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in [*KINDS, *(str(one["type"]) for one in decided)]:
        count = sum(1 for one in decided if one["type"] == kind)
        if count:
            found[kind] = count
    return found


def _known(told: Told, limit: int) -> list[str]:
    from apportion.adapters.cli.events import line_of

    batch, before = told.batch, told.before
    since = "since the beginning"
    if before is not None:
        since = f"since cycle {before.cycle:,} at seq {before.seq:,} ({render.when(before.time_ms)})"
    lines = [
        f"cycle {batch.cycle:,} at seq {batch.seq:,}, {render.when(batch.time_ms)}, decided by core {batch.core}",
        "",
        f"KNOWN {since}: {render.many(sum(told.counts.values()), 'record')}: "
        + ", ".join(f"{count:,} {kind}" for kind, count in told.counts.items()),
    ]
    shown = told.records[: limit or None]
    lines += [f"  {line_of(record, told.stated)}" for record in shown]
    return lines + _more(len(shown), len(told.records), "records")


def _decided(decided: Sequence[Mapping[str, Any]], limit: int) -> list[str]:
    from apportion.adapters.cli.telling import decision_lines

    if not decided:
        return ["DECIDED: nothing; the accounts were brought to this instant"]
    lines = [f"DECIDED: {len(decided):,}"]
    for kind, count in _counted(decided).items():
        mine = [one for one in decided if one["type"] == kind]
        lines.append(f"  {KINDS.get(kind, kind)}: {count:,}{_sums(kind, mine)}")
        shown = mine[: limit or None]
        for one in shown:
            said = decision_lines(str(one.get("workload") or one.get("node") or one.get("budget") or ""), dict(one))
            lines += [f"    {line}" for line in (said if kind not in _BRIEF else said[:1])]
            if kind == "run.preempted":
                lines += [f"      {line}" for line in _certificate(one["certificate"])]
        lines += [f"  {line}" for line in _more(len(shown), count, "of them")]
    return lines


_BRIEF = ("workload.admitted", "pending.explained", "plan.published")


def _sums(kind: str, decisions: Sequence[Mapping[str, Any]]) -> str:
    """Return how many GPUs, and by whom they are paid, of a kind of decision that has them."""
    if kind == "run.placed":
        paid = sum(one["gpus_milli"] for one in decisions if one["payer"] == "budget")
        rest = sum(one["gpus_milli"] for one in decisions) - paid
        return f" ({render.gpus(paid)} paid by budgets, {render.gpus(rest)} unfunded)"
    if kind == "run.preempted":
        return f" ({render.gpus(sum(one['certificate']['victim_gpus_milli'] for one in decisions))})"
    if kind == "run.closed":
        return f" ({render.gpus(sum(one['gpus_milli'] for one in decisions))} given back)"
    return ""


def _certificate(of: Mapping[str, Any]) -> list[str]:
    """Return why a preemption was right, in numbers that can be checked by hand."""
    return [
        f"certificate: {of['victim_budget']} ran {render.gpus(of['victim_running_milli'])} with an allowance of "
        f"{render.gpus(of['victim_allowance_milli'])}; {of['beneficiary_budget']} ran "
        f"{render.gpus(of['beneficiary_running_milli'])} with an allowance of "
        f"{render.gpus(of['beneficiary_allowance_milli'])} and needs {render.gpus(of['needed_milli'])}",
        f"it had run for {render.duration(of['ran_ms'])} and loses {render.gpu_time(of['lost_gpu_us'])}",
    ]  # fmt: skip


def _changed(told: Told, limit: int) -> list[Section]:
    columns = ["pool", "funded_milli", "unfunded_milli", "idle_milli", "down_milli", "pending_milli"]
    amounts = ["funded_gpu_us", "unfunded_gpu_us", "idle_gpu_us", "down_gpu_us"]
    pools = [_with_changes(row, columns[1:], amounts) for row in told.pools]
    lines = [_with_changes(row, ["funded_milli", "unfunded_milli", "pending_milli"], ["charged_gpu_us", "unfunded_gpu_us"])
             for row in told.budgets]  # fmt: skip
    headings = {
        "funded_gpu_us": "FUNDED TIME", "unfunded_gpu_us": "UNFUNDED TIME", "idle_gpu_us": "IDLE TIME",
        "down_gpu_us": "DOWN TIME", "charged_gpu_us": "CHARGED TIME",
    }  # fmt: skip
    return [
        Section(told.pools, [*columns, *amounts], "pools", "CHANGED, pools: GPUs now, and GPU time since the cycle before",
                shown=pools, headings=headings, empty="no pool changed"),
        Section(told.budgets, ["pool", "budget", "funded_milli", "unfunded_milli", "pending_milli", "charged_gpu_us",
                               "unfunded_gpu_us"],
                "budgets", "CHANGED, budgets", shown=lines[: limit or None], headings=headings, empty="no budget changed",
                after=_more(min(len(lines), limit or len(lines)), len(lines), "budgets")),
    ]  # fmt: skip


def _with_changes(row: Mapping[str, Any], rates: Sequence[str], amounts: Sequence[str]) -> dict[str, Any]:
    """Return a row with rates as ``now (+change)`` and amounts as what was added."""
    shown = dict(row)
    for name in rates:
        change = row[f"change_{name}"]
        sign = "+" if change > 0 else ""
        shown[name] = render.gpu_count(row[name]) + (f" ({sign}{render.gpu_count(change)})" if change else "")
    for name in amounts:
        change = row[f"change_{name}"]
        shown[name] = ("+" if change > 0 else "") + render.gpu_seconds(change) + " GPU-s" if change else "-"
    return shown


def _after(told: Told) -> list[str]:
    batch = told.batch
    lines = [
        f"before: digest {told.digest_before}",
        f"        chain  {told.chain_before}",
        f"after:  digest {batch.digest}",
        f"        chain  {batch.chain}",
    ]
    if told.difference is None:
        begun = f"{told.begun_from} at seq {told.begun_seq:,}" if told.begun_seq else told.begun_from
        lines.append(f"derived again: the same {told.bytes:,} bytes (the decisions before it were trusted, from {begun} on)")
    else:
        lines += ["derived again:", *difference_lines(told.difference, batch.cycle - 1)]
    hints = [f"apportion cycle {batch.cycle - 1}   the cycle before"] if batch.cycle > 1 else []
    if batch.cycle < told.last_cycle:
        hints.append(f"apportion cycle {batch.cycle + 1}   the next one")
    hints.append(f"apportion replay --seq {batch.seq}   the whole state after it")
    return [*lines, "", *hints]


def _more(shown: int, count: int, what: str) -> list[str]:
    return [f"  and {count - shown:,} more {what}; --limit 0 shows all, --json has all"] if count > shown else []
