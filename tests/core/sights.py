"""What a scenario can look at between ticks: ``see budget A paid=4h running=4``; each returns what is wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable

from apportion.core.lag import owed_us
from apportion.core.planned import changes_of
from apportion.core.state import schema
from apportion.core.units import MILLI
from tests.core.story import Story
from tests.core.words import gpu_time_text, gpus_text, same_value, time_text

WORKLOAD_STATES = {
    schema.NEW: "new", schema.PENDING: "pending", schema.HELD: "held", schema.RUNNING: "running", schema.OVER: "over",
}  # fmt: skip
RUN_STATES = {schema.PLACED: "placed", schema.STARTED: "started", schema.STOPPING: "stopping", schema.ENDED: "ended"}
SUSPENSIONS = {schema.SUSPEND_NONE: "no", schema.SUSPEND_START: "start_failures", schema.SUSPEND_STOP: "stop_timeout"}


def see(story: Story, what: str, words: list[str], values: dict[str, str]) -> str:
    """Return the differences between what the table says and the state."""
    sights: dict[str, Callable[..., dict[str, str]]] = {
        "budget": budget, "pool": pool, "node": node, "job": job, "run": run, "due": due, "counters": counters,
    }  # fmt: skip
    found = sights[what](story, *words)
    wrong = [
        f"{name} is {found.get(name, 'unknown')}, not {value}"
        for name, value in values.items()
        if name not in found or not same_value(value, found[name])
    ]
    return f"{what} {' '.join(words)}: " + ", ".join(wrong) if wrong else ""


def budget(story: Story, path: str, pool: str = "p") -> dict[str, str]:
    """A budget line: what it paid, what was free, its balance, what runs and waits."""
    state = story.core.state
    row = state.budget.row_of[f"{pool}:{path}"]
    table = state.budget
    ahead_ms = story.now_ms - state.counters.accrued_ms
    paid = int(table.charged_us[row]) + ahead_ms * int(table.funded_milli[row])
    return {
        "paid": gpu_time_text(paid),
        "free": gpu_time_text(int(table.unfunded_us[row]) + ahead_ms * int(table.unfunded_milli[row])),
        "left": gpu_time_text(int(table.granted_us[row]) - paid) if table.metered[row] else "unlimited",
        "running": gpus_text(int(table.running_milli[row])),
        "waiting": gpus_text(int(table.pending_milli[row])),
        "funded": gpus_text(int(table.funded_milli[row])),
        "unfunded": gpus_text(int(table.unfunded_milli[row])),
        "jobs": str(int(table.workloads[row])),
        "share": f"{int(table.share_ppm[row]) / 10_000:g}%",
        "state": "closed" if table.closed[row] else "barred" if table.barred[row] else "open",
        "planned": _planned(story, row),
        "forfeited": gpu_time_text(int(table.forfeited_us[row])),
        "forgiven": gpu_time_text(int(table.forgiven_us[row])),
        "owed": gpu_time_text(int(owed_us(state)[row]) + ahead_ms * int(table.lag_milli[row])),
    }


def _planned(story: Story, line: int) -> str:
    """Return what is planned for a line: ``20%@10h,0%@20h``, closed as ``closed@10h``."""
    table = story.core.state.planned
    return ",".join(
        ("closed" if table.closed[row] else f"{int(table.share_ppm[row]) / 10_000:g}%")
        + f"@{time_text(int(table.at_ms[row]) - story.start_ms)}"
        for row in changes_of(story.core.state, line)
    )  # fmt: skip


def pool(story: Story, name: str) -> dict[str, str]:
    """A pool: GPUs in supply, down, idle; and the time of each account."""
    state = story.core.state
    row = state.pool.row_of[name]
    ahead_ms = story.now_ms - state.counters.accrued_ms
    told = {}
    for account in ("supply", "down", "idle", "unfunded"):
        rate = int(getattr(state.pool, f"{account}_milli")[row])
        told[account] = gpus_text(rate)
        told[f"{account}_time"] = gpu_time_text(int(getattr(state.pool, f"{account}_us")[row]) + ahead_ms * rate)
    return told


def node(story: Story, name: str) -> dict[str, str]:
    """A node: whether it is suspended or cordoned, how many GPUs are out or free."""
    state = story.core.state
    row = state.node.row_of[name]
    first, size = int(state.node.first_gpu[row]), int(state.node.gpus[row])
    rows = range(first, first + size)
    return {
        "suspended": SUSPENSIONS[int(state.node.suspended[row])],
        "silent": "yes" if state.node.silent[row] else "no",
        "drained": ("forced" if state.node.drain_force[row] else "yes") if state.node.drain_set_ms[row] else "no",
        "cordoned": "yes" if state.node.cordoned[row] else "no",
        "gpus": str(size),
        "out": str(sum(int(state.gpu.out[gpu]) for gpu in rows)),
        "free": str(sum(1 for gpu in rows if not state.gpu.used_milli[gpu] and not state.gpu.out[gpu])),
        "busy": gpus_text(sum(int(state.gpu.used_milli[gpu]) for gpu in rows)),
        "kept": str(sum(1 for gpu in rows if state.gpu.held_by[gpu])),
        "failures": str(int(state.node.start_failures[row])),
    }


def job(story: Story, name: str) -> dict[str, str]:
    """A workload that is not over; one that is says ``state=gone``."""
    state = story.core.state
    row = state.workload.row_of.get(name)
    if row is None:
        return {"state": "gone" if name in state.closed.row_of else "unknown"}
    table = state.workload
    return {
        "state": WORKLOAD_STATES[int(table.state[row])],
        "failures": str(int(table.failures[row])),
        "start_failures": str(int(table.start_failures[row])),
        "fruitless": str(int(table.fruitless[row])),
        "runs": str(int(table.run_no[row])),
        "progress": time_text(int(table.progress_ms[row])),
    }


def run(story: Story, name: str) -> dict[str, str]:
    """A run in progress."""
    state = story.core.state
    row = state.run.row_of.get(name)
    if row is None:
        return {"state": "gone"}
    return {
        "state": RUN_STATES[int(state.run.state[row])],
        "payer": "budget" if int(state.run.payer[row]) == schema.PAYER_BUDGET else "unfunded",
        "gpus": f"{int(state.run.gpus_milli[row]) / MILLI:g}",
    }


def due(story: Story) -> dict[str, str]:
    """How far the next deadline is away: ``see due in=30s``."""
    due_ms = story.core.due_ms()
    return {"in": "never" if due_ms is None else time_text(due_ms - story.now_ms)}


def counters(story: Story) -> dict[str, str]:
    """The plain numbers of the state."""
    return {name: str(value) for name, value in vars(story.core.state.counters).items()}
