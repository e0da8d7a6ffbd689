"""The whole state of a core: tables, counters, people's rights, and what waits to be said in the next cycle.

Everything here is part of the digest and of snapshots, except the attributes under "derived", which are rebuilt from
the rest. Written by ``core.fold`` and ``core.ledger`` only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.core.decisions import AnyDecision
from apportion.core.state import schema
from apportion.core.state.frames import Frames
from apportion.core.state.memo import Memo
from apportion.core.state.rows import Rows
from apportion.core.state.table import Table

CHARGE, ADMINISTER = 1, 2
WEIGHT_SHIFT = 8
WAITS = 8  # numbers that are kept together of who is queued
EMPTY_CHAIN = b"\0" * 32


@dataclass
class Counters:
    """Plain numbers of the state; all integers, in this order in the digest."""

    seq: int = 0  # last record folded
    time_ms: int = 0  # its time
    accrued_ms: int = 0  # accounts are exact up to here
    cycle: int = 0  # cycles decided
    cycle_ms: int = 0  # time of the last one
    tick_pending: int = 0  # a tick was folded, its cycle is not decided
    dirty: int = 0  # an input since the last cycle may change a decision
    fair_stale: int = 1  # running or demand changed since lag rates were computed
    core: int = 0  # logic number in force
    stated: int = 0  # 1 = time comes from envelopes
    opened: int = 0
    heartbeats: int = 0
    stale_heartbeats: int = 0
    refused: int = 0
    pruned_ms: int = 0
    decaying: int = 0  # pools whose usage is remembered (policy fair_tree)
    planned_ms: int = 0  # next instant at which an entitlement changes as planned; 0 = none
    silence_ms: int = 0  # a gap of the whole log above this excuses every node: half the least heartbeat timeout


@dataclass
class State:
    """All tables and counters."""

    counters: Counters = field(default_factory=Counters)
    log_id: str = ""
    chain: bytes = EMPTY_CHAIN  # closed at each tick
    unchained: Frames = field(default_factory=Frames)  # of the records since then
    pool: schema.PoolTable = field(default_factory=schema.PoolTable)
    node: schema.NodeTable = field(default_factory=schema.NodeTable)
    gpu: schema.GpuTable = field(default_factory=schema.GpuTable)
    budget: schema.BudgetTable = field(default_factory=schema.BudgetTable)
    workload: schema.WorkloadTable = field(default_factory=schema.WorkloadTable)
    run: schema.RunTable = field(default_factory=schema.RunTable)
    alloc: schema.AllocTable = field(default_factory=schema.AllocTable)
    principal: schema.PrincipalTable = field(default_factory=schema.PrincipalTable)
    closed: schema.ClosedTable = field(default_factory=schema.ClosedTable)
    change: schema.ChangeTable = field(default_factory=schema.ChangeTable)
    planned: schema.PlannedTable = field(default_factory=schema.PlannedTable)
    schedule: schema.ScheduleTable = field(default_factory=schema.ScheduleTable)
    level: schema.LevelTable = field(default_factory=schema.LevelTable)
    domain: schema.DomainTable = field(default_factory=schema.DomainTable)
    label: schema.LabelTable = field(default_factory=schema.LabelTable)
    tag: schema.TagTable = field(default_factory=schema.TagTable)
    group: schema.GroupTable = field(default_factory=schema.GroupTable)
    wish: schema.WishTable = field(default_factory=schema.WishTable)
    service: schema.ServiceTable = field(default_factory=schema.ServiceTable)
    forecast: schema.ForecastTable = field(default_factory=schema.ForecastTable)
    choice: schema.ChoiceTable = field(default_factory=schema.ChoiceTable)
    members: dict[str, int] = field(default_factory=dict)  # "path principal" -> CHARGE | ADMINISTER | weight << WEIGHT_SHIFT
    refused: list[AnyDecision] = field(default_factory=list)  # to be written by the next cycle, in order
    # derived: the queue, sorted by (budget row, priority descending, sequence); rows of WorkloadTable
    queue: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    # beside it, per position: what is asked of a node, milli-GPU; -1 = something else beside GPUs
    asks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    queued: int = 0
    in_queue: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(64, dtype=np.uint8))  # by workload row: 1 = it is there
    lent: bool = False  # somebody walks these two as they are: they are copied before they change
    waiting: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, dtype=np.int64))  # by budget row: how many are queued
    # rows of who is queued and was never told why, or was told that he would be funded: he is told again when he is no head
    untold: Rows = field(default_factory=Rows)
    # of who is queued, by row of WorkloadTable: what does not change meanwhile (queue.py)
    waits: NDArray[np.int64] = field(default_factory=lambda: np.zeros((64, WAITS), dtype=np.int64))
    unsettled: Rows = field(default_factory=Rows)  # rows of WorkloadTable (unsettled.py)
    mixes: dict[int, tuple[int, NDArray[np.int64]]] = field(default_factory=dict)  # per pool: seq, what comes by then (mix.py)
    moved: int = 0  # another number whenever a run, what it holds, a GPU, a node or the tree may have changed
    memo: Memo = field(default_factory=Memo)
    speakers: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # heartbeat subjects met: row of the principal, bytes

    def tables(self) -> dict[str, Table]:
        """Return the tables in the order of the digest."""
        return {
            "pool": self.pool,
            "node": self.node,
            "gpu": self.gpu,
            "budget": self.budget,
            "workload": self.workload,
            "run": self.run,
            "alloc": self.alloc,
            "principal": self.principal,
            "closed": self.closed,
            "change": self.change,
            "planned": self.planned,
            "schedule": self.schedule,
            "level": self.level,
            "domain": self.domain,
            "label": self.label,
            "tag": self.tag,
            "group": self.group,
            "wish": self.wish,
            "service": self.service,
            "forecast": self.forecast,
            "choice": self.choice,
        }

    def budget_key(self, pool: str, path: str) -> str:
        """Return the key of a budget line."""
        return f"{pool}:{path}"

    def budget_path(self, row: int) -> str:
        """Return the path of a budget line ("" for a pool's root)."""
        return self.budget.keys[row].rpartition(":")[2]

    def budget_paths(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the paths of many budget lines."""
        return [key.rpartition(":")[2] for key in self.budget.keys_of(rows)]

    def run_ref(self, workload: str, run_no: int) -> str:
        """Return the key of a run."""
        return f"{workload}#{run_no}"

    def run_refs(self, workloads: list[str], run_nos: list[int]) -> list[str]:
        """Return the keys of many runs."""
        if run_nos and run_nos.count(run_nos[0]) == len(run_nos) == len(workloads):  # as most: each its first
            tail = f"#{run_nos[0]}"
            refs = f"{tail}\n".join(workloads).split("\n")  # no name has a line end
            refs[-1] += tail
            return refs
        return [f"{workload}#{run_no}" for workload, run_no in zip(workloads, run_nos, strict=True)]
