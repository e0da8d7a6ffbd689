"""A core's state as a statement: pools and their accounts, the budget tree, what runs and what waits.

A pure function of a ``Core``; used by ``replay``, which owns the core and throws it away. Accounts are brought to the time
of the last record first, so the numbers are those of that very moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.adapters import render
from apportion.adapters.cli.output import Answer, AsOf, Section

if TYPE_CHECKING:
    from apportion.core.engine import Core
    from apportion.core.state.state import State

WORKLOAD_STATES = {1: "new", 2: "pending", 3: "held", 4: "running", 5: "over"}
RUN_STATES = {1: "placed", 2: "running", 3: "stopping", 4: "ended"}
SHOWN_MAX = 20


def summary(core: Core) -> Answer:
    """Return what the state says; the digest is taken before anything is looked at."""
    from apportion.core import ledger

    digest, snapshot_bytes = core.digest(), len(core.snapshot())
    state, counters = core.state, core.state.counters
    ledger.accrue(state, core.time_ms)
    pools = _pools(state)
    budgets = _budgets(state)
    runs, waiting = _runs(state), _waiting(state)
    more = {
        "seq": core.seq,
        "time_ms": core.time_ms,
        "cycle": core.cycle,
        "digest": digest,
        "snapshot_bytes": snapshot_bytes,
        "log_id": state.log_id,
        "core": counters.core,
        "heartbeats": counters.heartbeats,
        "refused": counters.refused,
        "tick_pending": core.tick_pending,
        "due_ms": core.due_ms() if not core.tick_pending else None,
    }
    lines = [
        f"log {state.log_id or '(not opened)'} after record {core.seq:,}: {core.cycle:,} cycles decided by core "
        f"{counters.core}, {counters.heartbeats:,} heartbeats, {counters.refused:,} inputs refused",
        f"state digest {digest} ({snapshot_bytes:,} bytes)",
    ]
    if core.tick_pending:
        lines.append("this record is a tick whose cycle is not decided in this state")
    sections = [
        Section(pools, ["pool", "gpus_milli", "funded_milli", "unfunded_milli", "idle_milli", "down_milli", "pending_milli",
                        "supply_gpu_us"],
                key="pools", drop=("pending_milli",), title="Pools", empty="no pool is defined yet",
                headings={"gpus_milli": "GPUs", "supply_gpu_us": "GPU-h in all"}),
        Section(budgets, ["pool", "budget", "share_ppm", "funded_milli", "unfunded_milli", "pending_milli",
                          "charged_gpu_us", "left_gpu_us"],
                key="budgets", drop=("pool", "unfunded_milli"), title="Budgets", empty="no budget is set yet"),
        Section(runs, ["workload", "run", "state", "budget", "gpus_milli", "payer", "placed_ms", "nodes"],
                key="runs", drop=("state", "run", "payer"),
                title=f"Runs in progress: {len(runs):,}", empty="nothing runs", shown=runs[:SHOWN_MAX]),
        Section(waiting, ["workload", "state", "budget", "gpus_milli", "priority", "submit_ms"],
                key="waiting", drop=("priority",),
                title=f"Waiting: {len(waiting):,}", empty="nothing waits", shown=waiting[:SHOWN_MAX]),
    ]  # fmt: skip
    after = (
        [f"the first {SHOWN_MAX} of each are shown; --json has all"] if max(len(runs), len(waiting)) > SHOWN_MAX else []
    )
    return Answer(sections, lines, after, more=more, as_of=AsOf(core.seq, core.time_ms))


def _pools(state: State) -> list[dict[str, Any]]:
    from apportion.core import ledger

    rows = []
    for row, books in enumerate(ledger.books(state)):
        pool, root = state.pool, int(state.pool.root[row])
        rows.append(
            {
                "pool": books.pool,
                "gpus_milli": int(pool.supply_milli[row]),
                "funded_milli": int(state.budget.funded_milli[root]),
                "unfunded_milli": int(pool.unfunded_milli[row]),
                "idle_milli": int(pool.idle_milli[row]),
                "down_milli": int(pool.down_milli[row]),
                "pending_milli": books.pending_milli,
                "supply_gpu_us": books.supply,
                "funded_gpu_us": books.funded,
                "unfunded_gpu_us": books.unfunded,
                "idle_gpu_us": books.idle,
                "down_gpu_us": books.down,
            }
        )
    return rows


def _budgets(state: State) -> list[dict[str, Any]]:
    from apportion.core import lag

    table, owed = state.budget, lag.owed_us(state)
    rows = []
    for row in table.live_rows():
        path = state.budget_path(row)
        if not path:
            continue
        metered = bool(table.metered[row])
        rows.append(
            {
                "pool": state.pool.keys[int(table.pool[row])],
                "budget": path,
                "share_ppm": int(table.share_ppm[row]),
                "closed": bool(table.closed[row]),
                "funded_milli": int(table.funded_milli[row]),
                "unfunded_milli": int(table.unfunded_milli[row]),
                "pending_milli": int(table.pending_milli[row]),
                "charged_gpu_us": int(table.charged_us[row]),
                "unfunded_gpu_us": int(table.unfunded_us[row]),
                "granted_gpu_us": int(table.granted_us[row]) if metered else None,
                "left_gpu_us": int(table.granted_us[row]) - int(table.charged_us[row]) if metered else None,
                "lag_gpu_us": int(owed[row]),
            }
        )
    return sorted(rows, key=lambda found: (found["pool"], found["budget"]))


def _runs(state: State) -> list[dict[str, Any]]:
    table = state.run
    rows = []
    for row in table.live_rows():
        workload = int(table.workload[row])
        rows.append(
            {
                "workload": state.workload.keys[workload],
                "run": int(table.run_no[row]),
                "state": RUN_STATES.get(int(table.state[row]), "?"),
                "budget": state.budget_path(int(table.budget[row])),
                "pool": state.pool.keys[int(table.pool[row])],
                "gpus_milli": int(table.gpus_milli[row]),
                "payer": "budget" if int(table.payer[row]) == 1 else "unfunded",
                "placed_ms": int(table.placed_ms[row]),
                "protected_until_ms": int(table.protected_until_ms[row]),
                "nodes": _nodes_of(state, row),
            }
        )
    return sorted(rows, key=lambda found: (found["placed_ms"], found["workload"]))


def _nodes_of(state: State, run: int) -> str:
    names: dict[str, None] = {}
    alloc = int(state.run.first_alloc[run])
    while alloc >= 0:
        names[state.node.keys[int(state.gpu.node[int(state.alloc.gpu[alloc])])]] = None
        alloc = int(state.alloc.next[alloc])
    return render.clean(", ".join(names))


def _waiting(state: State) -> list[dict[str, Any]]:
    table = state.workload
    rows = [
        {
            "workload": table.keys[row],
            "state": WORKLOAD_STATES.get(int(table.state[row]), "?"),
            "budget": state.budget_path(int(table.budget[row])),
            "pool": state.pool.keys[int(table.pool[row])],
            "gpus_milli": int(table.gpus_milli[row]),
            "priority": int(table.priority[row]),
            "submit_ms": int(table.submit_ms[row]),
            "runs": int(table.run_no[row]),
        }
        for row in table.live_rows()
        if int(table.state[row]) in (1, 2, 3)
    ]
    return sorted(rows, key=lambda found: (found["submit_ms"], found["workload"]))
