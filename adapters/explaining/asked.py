"""What was asked for, as a submission again: made from the core's own columns, to be asked for with one thing changed.

A pure function of the state. What does not matter for where and when it starts (command, environment, its name) is not in the state
and is left out; the words of a command line for it are in ``adapters.explaining.commands``.
"""

from __future__ import annotations

from apportion.core.events import WorkloadSubmitted
from apportion.core.state.asks import choices_of
from apportion.core.state.state import State
from apportion.core.state.topology import NODE_LEVEL
from apportion.core.state.wishes import wish_of
from apportion.core.units import SERVICE_AHEAD


def submission_of(state: State, workload: int, name: str) -> WorkloadSubmitted:
    """Return the submission that asks for the same as a workload (row), under another name."""
    table, wish = state.workload, wish_of(state, workload)
    choices = choices_of(state, workload)
    pools = [state.choice.keys[choice].partition(" ")[2] for choice in choices] or [state.pool.keys[int(table.pool[workload])]]
    pool = state.pool.keys[int(table.pool[workload])]

    def level(height: int) -> str | None:
        return level_name(state, pool, height - 1) if height else None

    priority = int(table.priority[workload])
    return WorkloadSubmitted(
        workload=name,
        budget=shared_path(state, int(table.budget[workload])),
        pools=tuple(pools),
        gpus_milli=int(table.gpus_milli[workload]),
        nodes=0 if wish.loose else int(table.nodes[workload]),
        loose=bool(wish.loose),
        within=level(wish.within),
        near=level(wish.near),
        labels=dict(label.split("=", 1) for label in wish.labels),
        gpu_memory_mib=wish.gpu_memory_mib,
        cpu_milli=wish.cpu_milli,
        memory_mib=wish.memory_mib,
        exclusive=bool(wish.exclusive) and not (wish.aligned and int(table.nodes[workload]) > 1),
        block=bool(wish.aligned),
        apart=wish.group.rpartition(":")[2] or None,
        apart_level=level(wish.apart_level) if wish.group else None,
        min_runtime_ms=int(table.min_runtime_ms[workload]),
        expected_runtime_ms=int(table.expected_runtime_ms[workload]),
        auto_resume=bool(table.auto_resume[workload]),
        movable=bool(table.movable[workload]),
        grace_ms=int(table.grace_ms[workload]),
        priority=priority - SERVICE_AHEAD if table.service[workload] else priority,
        max_failures=int(table.max_failures[workload]),
    )


def shared_path(state: State, line: int) -> str:
    """Return the path that is charged: of the budget itself where the line is that of one user of it."""
    return state.budget_path(int(state.budget.parent[line]) if state.budget.user[line] else line)


def level_name(state: State, pool: str, height: int) -> str:
    """Return the name of a level of a pool by its height."""
    if not height:
        return NODE_LEVEL
    prefix = f"{pool}/"
    rows = [row for row in state.level.live_rows() if state.level.keys[row].startswith(prefix)]
    return next(state.level.keys[row].removeprefix(prefix) for row in rows if int(state.level.height[row]) == height)
