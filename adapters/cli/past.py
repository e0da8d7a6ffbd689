"""The verb that goes back: replay, the core's own state as it was after any record.

Made from the logs, from the nearest snapshot on, by the core and nothing else: tree, queue with reasons, placements, nodes, what is
kept and held for whom. It reads; nothing is decided and no log is written, and it works with the server stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.arguments import Mark
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.finding import nearest
from apportion.adapters.cli.output import Answer, AsOf, Section
from apportion.adapters.cli.proving import last_of, seq_of, snapshot_directories
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.verbs import Place, moment, one_of, use_kernels, verb, whole
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.seen.sight import Sight

PANEL = "Check and replay"
PARTS = ("tree", "queue", "placements", "nodes", "reasons")
SHOWN = 20
Rows = Sequence[Mapping[str, Any]]


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("replay", rich_help_panel=PANEL)(verb(replay))


@dataclass(frozen=True)
class Wanted:
    """Which part is shown, of whom, and how many rows of each table."""

    part: str
    budget: str
    node: str
    workload: str
    most: int

    def of(self, rows: Rows) -> list[Mapping[str, Any]]:
        """Return the rows that are asked for."""
        return [row for row in rows if self._budget(row) and self._node(row) and self._workload(row)]

    def _budget(self, row: Mapping[str, Any]) -> bool:
        path = row.get("budget")
        return not self.budget or path is None or path == self.budget or str(path).startswith(self.budget + "/")

    def _node(self, row: Mapping[str, Any]) -> bool:
        if not self.node:
            return True
        if "node" in row:
            return bool(row["node"] == self.node)
        named = row.get("nodes")
        return self.node in (named.split(", ") if isinstance(named, str) else named) if isinstance(named, str | list) else True

    def _workload(self, row: Mapping[str, Any]) -> bool:
        if not self.workload:
            return True
        if "runs" in row and "node" in row:
            runs = [str(run).rpartition("#")[0] for run in row["runs"]]
            return self.workload in (*runs, *row["held_for"], row["kept_for"])
        return "workload" not in row or bool(row["workload"] == self.workload)


async def replay(
    place: Place,
    at: Annotated[int | None, moment("The state at this instant", "--at")] = None,
    seq: Annotated[
        int | None,
        typer.Option("--seq", "--to", parser=whole(0), metavar="N", help="The state after record N [default: the last]"),
    ] = None,
    part: Annotated[
        str | None, typer.Option("--only", parser=one_of(*PARTS), metavar="PART", help=f"Only this: {', '.join(PARTS)}")
    ] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="PATH", help="Of this budget and those below it")] = "",
    node: Annotated[str, typer.Option("--node", metavar="NODE", help="Of this node")] = "",
    workload: Annotated[str, typer.Option("--workload", metavar="JOB", help="Of this job")] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", parser=whole(0), metavar="N", help="Rows of a table; 0 for all")
    ] = SHOWN,
    from_start: Annotated[bool, typer.Option("--from-start", help="Use no snapshot, read every record")] = False,
) -> Answer:
    """Show the core's state as it was at an instant or after a record, made from the log."""
    if at is not None and seq is not None:
        raise usage("--at and --seq cannot both be given", "choose one of them")
    use_kernels()
    from apportion.adapters.proving.waypoints import Foreign, newest
    from apportion.adapters.seen.sight import sight_at

    async with open_logs(place) as logs:
        last_seq = await last_of(logs)
        mark = Mark(render.iso(at), at_ms=at) if at is not None else Mark("", seq=last_seq if seq is None else seq)
        to_seq = await seq_of(logs, mark, "--at" if at is not None else "--seq", last_seq)
        find = partial(newest, logs.events, snapshot_directories(place))
        try:
            with progress("replay", quiet=place.as_json) as show:
                sight = await sight_at(logs.events, logs.decisions, to_seq, None if from_start else find, show)
        except Foreign as error:
            raise Failure(FAILED, str(error), "move that snapshot away, or use --from-start") from None
    wanted = Wanted(part or "", budget, node, workload, limit)
    _check_names(sight, wanted)
    return shown(sight, wanted)


def _check_names(sight: Sight, wanted: Wanted) -> None:
    """Raise ``Failure`` (2) for a name that is not in this state."""
    state = sight.core.state
    live = state.workload.row_of.keys() | state.closed.row_of.keys()
    paths = dict.fromkeys(state.budget_path(row) for row in state.budget.live_rows())
    for name, known, what in (
        (wanted.budget, paths, "budget"), (wanted.node, state.node.row_of, "node"), (wanted.workload, live, "job"),
    ):  # fmt: skip
        if name and name not in known:
            raise nearest(name, sorted(known), what, f"without the filter all are shown, as of seq {sight.core.seq:,}")


def shown(sight: Sight, wanted: Wanted) -> Answer:
    """Return a state as an answer."""
    core = sight.core
    counters = core.state.counters
    more = {
        "seq": core.seq,
        "time_ms": core.time_ms,
        "cycle": core.cycle,
        "digest": sight.digest,
        "snapshot_bytes": sight.snapshot_bytes,
        "log_id": core.state.log_id,
        "core": counters.core,
        "heartbeats": counters.heartbeats,
        "refused": counters.refused,
        "tick_pending": core.tick_pending,
        "due_ms": core.due_ms() if not core.tick_pending else None,
        "last_cycle_seq": sight.cycle_seq,
        "last_cycle_ms": sight.cycle_ms,
        "begun_seq": sight.begun_seq,
        "begun_from": sight.begun_from,
    }
    begun = f"{sight.begun_from} at seq {sight.begun_seq:,}" if sight.begun_seq else sight.begun_from
    lines = [
        f"log {core.state.log_id or '(not opened)'} after record {core.seq:,}: {render.many(core.cycle, 'cycle')} decided by core "
        f"{counters.core}, {render.many(counters.heartbeats, 'heartbeat')}, {render.many(counters.refused, 'input')} refused",
        f"state digest {sight.digest} ({sight.snapshot_bytes:,} bytes), made from {begun}",
    ]
    if core.tick_pending:
        lines.append("this record is a tick whose cycle is not decided in this state")
    if sight.cycle_seq:
        lines.append(
            f"what budgets are entitled to, which nodes are kept and the numbers of reasons are of the last cycle, seq "
            f"{sight.cycle_seq:,} ({render.when(sight.cycle_ms)})"
        )
    sections = [section for part in ([wanted.part] if wanted.part else ["all"]) for section in _SECTIONS[part](sight, wanted)]
    cut = any(section.shown is not None and len(section.shown) < len(section.rows) for section in sections)
    after = [f"the first {wanted.most} of each are shown; --limit N shows more, --json has all"] if cut else []
    return Answer(sections, lines, after, more=more, as_of=AsOf(core.seq, core.time_ms))


def _table(
    rows: Rows, wanted: Wanted, columns: Sequence[str], key: str, title: str, empty: str, *, drop: Sequence[str] = (), **more: Any
) -> Section:
    found = wanted.of(rows)
    first = found[: wanted.most or None]
    shown_rows = [_readable(row) for row in first]
    return Section(found, columns, key, title.format(n=f"{len(found):,}"), empty=empty, shown=shown_rows, drop=drop, **more)


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in row.items()}


def _tree(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import tree

    return [
        _table(
            tree.pools(sight), wanted,
            ["pool", "policy", "gpus_milli", "funded_milli", "unfunded_milli", "idle_milli", "down_milli", "pending_milli",
             "supply_gpu_us"],
            "pools", "Pools", "no pool is defined yet", drop=("pending_milli", "policy"),
            headings={"gpus_milli": "GPUs", "supply_gpu_us": "GPU-h in all"},
        ),
        _table(
            tree.budgets(sight), wanted,
            ["pool", "budget", "share_ppm", "entitled_milli", "allowance_milli", "funded_milli", "unfunded_milli",
             "pending_milli", "charged_gpu_us", "left_gpu_us", "lag_gpu_us"],
            "budgets", "Budgets: {n}", "no budget is set yet", drop=("pool", "lag_gpu_us", "unfunded_milli"),
        ),
    ]  # fmt: skip


def _placements(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import work

    return [
        _table(
            work.runs(sight), wanted,
            ["workload", "run", "state", "budget", "gpus_milli", "payer", "placed_ms", "protected_until_ms", "nodes"],
            "runs", "Runs in progress: {n}", "nothing runs", drop=("state", "run", "protected_until_ms"),
        )
    ]  # fmt: skip


def _kept(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import work

    return [
        _table(
            work.reservations(sight), wanted, ["workload", "budget", "gpus_milli", "until_ms", "nodes"], "reservations",
            "Nodes kept for who waits, until then: {n}", "no node is kept for anybody",
        ),
        _table(
            work.holds(sight), wanted, ["workload", "budget", "held_milli", "why", "nodes"], "holds",
            "GPUs held for who starts next: {n}", "no GPU is held for anybody",
        ),
    ]  # fmt: skip


def _queue(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import work

    columns = ["workload", "state", "budget", "gpus_milli", "priority", "ahead", "submit_ms", "reason"]
    waits = _table(
        work.waiting(sight), wanted, columns, "waiting", "Waiting: {n}", "nothing waits", drop=("priority", "state", "submit_ms")
    )
    return [waits, *_kept(sight, wanted)]


def _reasons(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import work

    found = wanted.of(work.waiting(sight))
    told = [{**row, "why": _why(row)} for row in found[: wanted.most or None]]
    columns = ["workload", "budget", "gpus_milli", "ahead", "reason", "why"]
    return [Section(found, columns, "waiting", f"Waiting: {len(found):,}", empty="nothing waits", shown=told, drop=("reason",))]


def _why(row: Mapping[str, Any]) -> str:
    from apportion.adapters.text import wording
    from apportion.core.reasons import Pending

    if row["reason_now"] is None:
        return "it came after the last cycle" if row["state"] == "new" else "no cycle has looked at it since"
    return wording.words(Pending(row["reason_now"]), row["numbers"])[0]


def _nodes(sight: Sight, wanted: Wanted) -> list[Section]:
    from apportion.adapters.seen import nodes

    columns = ["node", "pool", "state", "gpus", "busy_milli", "free_milli", "runs", "held_for", "kept_for", "kept_until_ms"]
    drop = ("pool", "kept_until_ms", "held_for")
    return [
        _table(nodes.nodes(sight), wanted, columns, "nodes", "Nodes: {n}", "no node has joined yet", drop=drop, flexible="runs")
    ]


def _all(sight: Sight, wanted: Wanted) -> list[Section]:
    return [part for make in (_tree, _placements, _queue, _nodes) for part in make(sight, wanted)]


_SECTIONS: dict[str, Callable[[Sight, Wanted], list[Section]]] = {
    "tree": _tree, "queue": _queue, "placements": _placements, "nodes": _nodes, "reasons": _reasons, "all": _all,
}  # fmt: skip
