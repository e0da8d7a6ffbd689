"""What may be different in a what-if, as events: shares, rules, nodes, work that is not there, work that is.

Each function returns a ``Change`` of a range that begins with a given core: events that are published besides those of history, and
which of those are not. What the manager's file or option sets holds for the whole range: an event of history that would set the
same thing again is left out, and the change says how many are. Pure functions; ``ChangeRefused`` says what cannot be, and what
to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import msgspec.inspect

from apportion.adapters.simulation.stated import Stated, stated
from apportion.adapters.text import render
from apportion.adapters.text.bounds import place_of, rule_words
from apportion.adapters.text.template import number_words
from apportion.adapters.whatif.beats import Beats
from apportion.adapters.whatif.demand import Asked, Demand, Ending, Needs
from apportion.adapters.whatif.history import Entry, History, event_of
from apportion.adapters.whatif.playing import MADE, Change
from apportion.core.envelope import subject_of
from apportion.core.events import (
    BudgetGranted,
    BudgetSet,
    Event,
    NodeJoined,
    NodeLeft,
    PolicyActivated,
    WorkloadCancelled,
    WorkloadReprioritized,
    WorkloadSubmitted,
)

if TYPE_CHECKING:
    from apportion.core.engine import Core



class ChangeRefused(ValueError):
    """The change cannot be made: ``what`` is wrong and what to ``do``."""

    def __init__(self, what: str, do: str = "") -> None:
        super().__init__(what)
        self.what, self.do = what, do


class Wish(NamedTuple):
    """A line of a budgets file: what a budget is to have. ``share_ppm`` -1 = as it was."""

    pool: str
    budget: str
    share_ppm: int = -1
    grant_gpu_us: int = 0
    line: int = 0


class Joining(NamedTuple):
    """Nodes that are there from an instant on."""

    pool: str
    nodes: int
    gpus: int
    at_ms: int


class Extra(NamedTuple):
    """Work that nobody submitted: the submission, from when on, as whom, and how long it really runs."""

    event: WorkloadSubmitted
    principal: str
    at_ms: int
    runs_ms: int


def operator_of(core: Core) -> str:
    """Return a principal that may operate the cluster."""
    table = core.state.principal
    names = [name for name, row in table.row_of.items() if table.operator[row]]
    if not names:
        raise ChangeRefused(
            "this log names no operator, so nobody may change anything in it", "log.opened names operators"
        )
    return names[0]


def joined(changes: Sequence[Change]) -> Change:
    """Return several changes as one."""
    drops = [change.drops for change in changes if change.drops is not None]
    return Change(
        events=tuple(event for change in changes for event in change.events),
        drops=(lambda entry: any(drop(entry) for drop in drops)) if drops else None,
        gone=frozenset().union(*(change.gone for change in changes)),
        beats=next((change.beats for change in changes if change.beats is not None), None),
        words=tuple(word for change in changes for word in change.words),
    )


def _events(core: Core, events: Sequence[Event], about: str) -> tuple[Stated, ...]:
    by = operator_of(core)
    return tuple(stated(core.time_ms, by, event, f"{MADE}.{about}.{number}") for number, event in enumerate(events, 1))


# -- budgets ---------------------------------------------------------------------------------------------------------------


def budgets(core: Core, history: History, wishes: Sequence[Wish], origin: str) -> Change:
    """Return other shares and grants from the beginning of the range on; shrinking ones first, so that no sum is ever too large."""
    state = core.state
    changed: list[tuple[int, BudgetSet]] = []
    grants: list[BudgetGranted] = []
    words: list[str] = []
    for wish in wishes:
        row = state.budget.row_of.get(state.budget_key(wish.pool, wish.budget))
        place = f"{origin}, line {wish.line}: " if wish.line else ""
        if row is None:
            raise ChangeRefused(
                f"{place}pool {wish.pool} had no budget {wish.budget} at the beginning of the range",
                _similar(core, wish),
            )
        if wish.share_ppm >= 0:
            was_ppm = int(state.budget.share_ppm[row])
            changed.append(
                (wish.share_ppm - was_ppm, BudgetSet(pool=wish.pool, budget=wish.budget, share_ppm=wish.share_ppm))
            )
            if wish.share_ppm != was_ppm:
                words.append(
                    f"{wish.budget} in {wish.pool}: share {render.percent(was_ppm)} -> {render.percent(wish.share_ppm)}"
                )
        if wish.grant_gpu_us:
            grants.append(BudgetGranted(pool=wish.pool, budget=wish.budget, gpu_us=wish.grant_gpu_us, reason=MADE))
            words.append(f"{wish.budget} in {wish.pool}: a grant of {render.gpu_hours(wish.grant_gpu_us)} GPU-h")
    _check_sums(core, wishes, origin)
    changed.sort(key=lambda one: one[0])
    named = {(event.pool, event.budget) for _step, event in changed}

    def sets(entry: Entry) -> bool:
        if entry.kind != "budget.set" or not named:
            return False
        event = event_of(entry)
        return isinstance(event, BudgetSet) and (event.pool, event.budget) in named

    left_out = sum(sets(entry) for entry in history.entries)
    if left_out:
        words.append(f"{left_out} later changes of these shares in history are left out")
    events = _events(core, [*(event for _step, event in changed), *grants], "budgets")
    return Change(events, sets if left_out else None, words=tuple(words) or ("the shares are what they were",))


def _similar(core: Core, wish: Wish) -> str:
    paths = [
        key.partition(":")[2]
        for key in core.state.budget.row_of
        if key.startswith(f"{wish.pool}:") and not key.endswith(":")
    ]
    ending = wish.budget.rpartition("/")[2]
    near = [path for path in paths if path.endswith(ending)] or paths
    return f"it had {', '.join(sorted(near)[:8])}" if near else f"pools are {', '.join(core.state.pool.row_of)}"


def _check_sums(core: Core, wishes: Sequence[Wish], origin: str) -> None:
    """Refuse shares that together are more than the whole of their parent."""
    table = core.state.budget
    wanted = {
        table.row_of[core.state.budget_key(wish.pool, wish.budget)]: wish for wish in wishes if wish.share_ppm >= 0
    }
    for parent in dict.fromkeys(int(table.parent[row]) for row in wanted):
        children = [row for row in table.row_of.values() if int(table.parent[row]) == parent and not table.closed[row]]
        total = sum(wanted[row].share_ppm if row in wanted else int(table.share_ppm[row]) for row in children)
        if total > 1_000_000:
            parts = ", ".join(
                f"{core.state.budget_path(row).rpartition('/')[2]} "
                f"{render.percent(wanted[row].share_ppm if row in wanted else int(table.share_ppm[row]))}"
                for row in children
            )
            line = min(wish.line for row, wish in wanted.items() if int(table.parent[row]) == parent)
            raise ChangeRefused(
                f"{origin}{f', line {line}' if line else ''}: shares below {core.state.budget_path(parent) or 'the pool'} "
                f"come to {render.percent(total)}, more than the whole: {parts}",
                "name what shrinks too",
            )


# -- rules -----------------------------------------------------------------------------------------------------------------


def policy(core: Core, history: History, pool: str, fields: dict[str, Any]) -> Change:
    """Return other rules of a pool; an event of history that sets one of the same rules is left out."""
    if pool not in core.state.pool.row_of:
        raise ChangeRefused(f"there is no pool {pool!r}", f"pools are {', '.join(core.state.pool.row_of)}")
    try:
        event = msgspec.convert({"pool": pool, **fields, "reason": MADE}, PolicyActivated)
    except msgspec.ValidationError as error:
        text, path = place_of(error)
        rule = path[-1] if path else ""
        known = _values_of(rule)
        what = f"one of {', '.join(known)}" if known else rule_words(rule, text)
        value = number_words(rule, fields[rule]) if rule in fields else ""
        raise ChangeRefused(
            f"policy of {pool}: {rule} {value} is not accepted: {what}", "`apportion policy set --help` lists rules and values"
        ) from None
    unknown = [name for name in fields if name not in PolicyActivated.__struct_fields__]
    if unknown:
        rules = ", ".join(name for name in PolicyActivated.__struct_fields__ if name not in ("pool", "reason"))
        raise ChangeRefused(f"policy of {pool}: there is no rule {', '.join(unknown)}", f"rules are {rules}")

    def sets(entry: Entry) -> bool:
        if entry.kind != "policy.activated":
            return False
        found = event_of(entry)
        return (
            isinstance(found, PolicyActivated)
            and found.pool == pool
            and any(getattr(found, name) is not None for name in fields)
        )

    told = ", ".join(f"{name} {number_words(name, value)}" for name, value in fields.items())
    drops = sets if any(sets(entry) for entry in history.entries) else None
    return Change(_events(core, [event], "policy"), drops, words=(f"pool {pool}: {told}",))


def _values_of(rule: str) -> list[str]:
    """Return the values that a rule may have, where it has names for them."""
    kinds = {one.name: one.type for one in msgspec.inspect.type_info(PolicyActivated).fields}  # type: ignore[attr-defined]  # a struct has
    found = kinds.get(rule)
    parts = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    return [str(value) for part in parts if isinstance(part, msgspec.inspect.LiteralType) for value in part.values]


# -- nodes -----------------------------------------------------------------------------------------------------------------


def cluster(core: Core, history: History, joining: Sequence[Joining], leaving: Sequence[str]) -> Change:
    """Return a cluster with other nodes: some are gone from the beginning, some are there from an instant on."""
    state, by = core.state, operator_of(core)
    events: list[Stated] = []
    beats = Beats()
    arrivals: list[tuple[int, str]] = []
    later = {event.node for entry in history.entries if isinstance(event := _joined(entry), NodeJoined)}
    for node in leaving:
        if node not in state.node.row_of and node not in later:
            raise ChangeRefused(
                f"there is no node {node!r} in the range", f"nodes are {', '.join(list(state.node.row_of)[:8])}, ..."
            )
        row = state.node.row_of.get(node)
        if row is not None and int(state.node.gpus[row]):
            events.append(stated(core.time_ms, by, NodeLeft(node=node, reason=MADE), f"{MADE}.left.{node}"))
    for number, group in enumerate(joining, 1):
        if group.pool not in state.pool.row_of:
            raise ChangeRefused(f"there is no pool {group.pool!r}", f"pools are {', '.join(state.pool.row_of)}")
        if group.at_ms >= history.to_ms:
            raise ChangeRefused(
                f"{group.nodes} nodes would join at {render.when(group.at_ms)}, and the range ends at {render.when(history.to_ms)}",
                "let them join earlier, or end the range later with --to",
            )
        for each in range(1, group.nodes + 1):
            name = f"{MADE}-{number}-{each}"
            event = NodeJoined(node=name, pool=group.pool, gpus=group.gpus, agent=name)
            events.append(stated(max(group.at_ms, core.time_ms), by, event, f"{MADE}.joined.{name}"))
            arrivals.append((max(group.at_ms, core.time_ms), name))
    if arrivals:
        every_ms = max(1_000, int(state.pool.column("heartbeat_timeout_ms").min()) // 4)
        for at_ms in range(core.time_ms, history.to_ms + every_ms, every_ms):
            for since_ms, name in arrivals:
                if at_ms >= since_ms:
                    count = (at_ms - core.time_ms) // every_ms + 1
                    beats.add(0, at_ms + 1, subject_of(name, "node.heartbeat"), name, count)
    gone = frozenset(leaving)

    def about(entry: Entry) -> bool:
        if not gone or not entry.kind.startswith("node."):
            return False
        return (entry.key or getattr(event_of(entry), "node", "")) in gone

    words = (
        [f"{render.many(len(leaving), 'node is', 'nodes are')} not there: {', '.join(leaving[:8])}{', ...' * (len(leaving) > 8)}"]
        if leaving
        else []
    )
    words += [
        f"{render.many(group.nodes, 'more node', 'more nodes')} of {render.gpus(group.gpus * 1_000)} in {group.pool} "
        f"from {render.when(max(group.at_ms, core.time_ms))} on"
        for group in joining
    ]
    return Change(tuple(events), about if gone else None, gone, beats if arrivals else None, tuple(words))


def _joined(entry: Entry) -> Event | None:
    return event_of(entry) if entry.kind == "node.joined" else None


# -- work ------------------------------------------------------------------------------------------------------------------


def without(core: Core, history: History, name: str) -> Change:
    """Return a world without a workload, or without all work of a budget and those below it."""
    state = core.state
    budget = any(key.partition(":")[2] == name for key in state.budget.row_of)
    gone: dict[str, None] = {}
    for workload, row in (*state.workload.row_of.items(), *state.service.row_of.items()):
        table = state.workload if workload in state.workload.row_of else state.service
        path = state.budget_path(int(table.budget[row]))
        if workload == name or (budget and _below(path, name)):
            gone[workload] = None
    there = [
        workload for workload in gone
        if (":" not in workload or workload in state.service.row_of) and not _cancelled(core, workload)
    ]  # fmt: skip
    for entry in history.entries:
        if entry.kind == "workload.submitted":
            event = event_of(entry)
            if isinstance(event, WorkloadSubmitted) and (
                event.workload == name or (budget and _below(event.budget, name))
            ):
                gone[event.workload] = None
    if not gone:
        raise ChangeRefused(
            f"{name!r} is no workload and no budget of the range",
            "name a workload's id, or a budget's path with work in the range",
        )

    def about(entry: Entry) -> bool:
        if not entry.kind.startswith(("workload.", "demand.", "forecast.")):
            return False
        event = event_of(entry)
        if isinstance(event, WorkloadSubmitted | WorkloadCancelled | WorkloadReprioritized):
            return event.workload in gone
        return getattr(event, "target", getattr(event, "workload", "")) in gone

    cancels = _events(core, [WorkloadCancelled(workload=workload, reason=MADE) for workload in there], "without")
    what = f"{render.many(len(gone), 'workload')} of {name}, all there are" if budget else f"workload {name}"
    return Change(
        cancels, about, words=(f"without {what}" + (f", {len(there)} of which were there before" if there else ""),)
    )


def _cancelled(core: Core, workload: str) -> bool:
    """Tell whether somebody has withdrawn a workload or service already."""
    service, table = core.state.service, core.state.workload
    if workload in service.row_of:
        return bool(service.cancel_seq[service.row_of[workload]])
    return bool(table.cancel_seq[table.row_of[workload]])


def _below(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}/")


def submitted(core: Core, history: History, needs: Needs, extras: Sequence[Extra]) -> Change:
    """Return a world with more work; how long it runs is told to ``needs``."""
    events, words = list[Stated](), list[str]()
    for number, extra in enumerate(extras, 1):
        if extra.at_ms and not core.time_ms <= extra.at_ms < history.to_ms:
            raise ChangeRefused(
                f"a job of {extra.event.budget} would come at {render.when(extra.at_ms)}, outside the range from "
                f"{render.when(core.time_ms)} to {render.when(history.to_ms)}",
                "name an instant within it with at=, or another range with --from and --to",
            )
        event = extra.event
        recorder = needs.recorder
        recorder.asked[event.workload] = Asked(
            event.budget, event.gpus_milli, event.expected_runtime_ms, event.checkpoint_interval_ms,
            event.service is not None, extra.at_ms,
        )  # fmt: skip
        recorder.demand[event.workload] = (
            Demand([Ending(extra.runs_ms, True)], censored="") if extra.runs_ms else Demand()
        )
        at_ms = max(extra.at_ms, core.time_ms)
        events.append(stated(at_ms, extra.principal or operator_of(core), event, f"{MADE}.submitted.{number}"))
    for extra in extras[:1]:
        many = f"{len(extras)} more jobs" if len(extras) > 1 else "one more job"
        words.append(
            f"{many} of {extra.event.budget}: {render.gpus(extra.event.gpus_milli)} for {render.duration(extra.runs_ms)} from "
            f"{render.when(max(extra.at_ms, core.time_ms))} on"
        )
    return Change(tuple(events), words=tuple(words))
