"""A start: the decision that gives a workload its GPUs, and the starts of those for whom GPUs were freed.

Decides who pays for the run and how long it is protected, from what the budget may pay now; the same for every policy. GPUs are
chosen before, by whoever calls. Beside the decision it keeps ``Shares`` current, so that the next one sees it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import GpusReserved, RunPlaced
from apportion.core.kernels import placed, serve
from apportion.core.listed import Column, Listed, Numbers, Places, Texts, texts_of
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import has_room
from apportion.core.policy.funding import ANSWERS, Shares, fundable
from apportion.core.policy.reserving import says_over_ms
from apportion.core.reasons import Funding, Payer
from apportion.core.state import schema
from apportion.core.state.asks import Ask, ask_of, way_home
from apportion.core.state.bulk import Started
from apportion.core.state.holdings import pieces_of, runs_on_node
from apportion.core.state.state import State
from apportion.core.units import MILLI, gpu_us

_BUDGET, _UNFUNDED = Payer.BUDGET.value, Payer.UNFUNDED.value
_WHYS = [ANSWERS[answer].value for answer in sorted(ANSWERS)]  # by what a kernel answers


def count_held_as_running(state: State, shares: Shares) -> None:
    """A budget whose GPUs are being freed for it has them already, as far as order and funding go."""
    for row in _held(state):
        add_running(state, shares, row, 1)


def _held(state: State) -> list[int]:
    """Return the workloads that GPUs are held for, in queue order."""
    table, memo = state.workload, state.memo.at(state.moved)
    if memo.held is None:
        held = np.flatnonzero(table.column("state") == schema.HELD)
        memo.held = held[np.lexsort((table.event_seq[held], -table.priority[held], table.budget[held]))].tolist()
    return memo.held


def add_running(state: State, shares: Shares, workload: int, sign: int) -> None:
    """Count a workload's GPUs as its budget's, or no longer; work on idle cycles is nobody's."""
    if not state.workload.min_runtime_ms[workload]:
        return
    line = int(state.workload.budget[workload])
    while line >= 0:
        shares.running[line] += sign * int(state.workload.gpus_milli[workload])
        line = int(state.budget.parent[line])


def start_held(state: State, emit: Emit, shares: Shares) -> None:
    """Start workloads whose held GPUs are all free; give up a hold of which a GPU went out of service or away, or will too soon.

    Or of which a node has too little else (CPU, memory), and nothing there is ending.
    """
    table, used_milli, out, starts = state.workload.cells, state.gpu.cells.used_milli, state.gpu.cells.out, list[RunPlaced]()
    held = _held(state)
    gpus_of = _held_gpus(state) if held else {}
    for row in held:
        if table.wish[row]:  # who starts before him may take what he wishes for
            _write(emit, starts)
        gpus, milli_each = gpus_of.get(row, []), min(MILLI, table.milli_per_node[row])
        short = len(gpus) * milli_each != table.gpus_milli[row]
        free = all(used_milli[gpu] + milli_each <= MILLI for gpu in gpus)
        room = has_room(state, row, gpus)
        gone = short or any(out[gpu] for gpu in gpus) or _drained_before_its_end(state, row, gpus)
        if gone or (free and not room and not _stopping_on(state, gpus)):
            add_running(state, shares, row, -1)  # before it goes home, where it may be in another pool
            _write(emit, starts)
            emit(GpusReserved(workload=state.workload.keys[row], pieces=(), waits_in=way_home(state, row)))
        elif free and room:
            add_running(state, shares, row, -1)
            starts.append(_start_of(state, shares, row, gpus, table.hold[row], 0, ask_of(state, row)))
            _count_start(state, shares, row, starts[-1].reserved_gpu_us)
    _write(emit, starts)


def _write(emit: Emit, starts: list[RunPlaced]) -> None:
    """Write starts that do not see each other, together: who leaves the queue is then looked for once. Empties the list."""
    if starts:
        emit.all(starts)
        starts.clear()


def _held_gpus(state: State) -> dict[int, list[int]]:
    """Return per workload the GPU rows that are held for it, ascending."""
    held_by, found = state.gpu.column("held_by"), dict[int, list[int]]()
    rows = np.flatnonzero(held_by)
    for gpu, workload in zip(rows.tolist(), held_by[rows].tolist(), strict=True):
        found.setdefault(workload - 1, []).append(gpu)
    return found


def _stopping_on(state: State, gpus: list[int]) -> bool:
    """Tell whether a run that holds something of the GPUs' nodes is ending."""
    nodes = dict.fromkeys(int(state.gpu.node[gpu]) for gpu in gpus)
    return any(int(state.run.state[run]) == schema.STOPPING for node in nodes for run in runs_on_node(state, node))


def _drained_before_its_end(state: State, workload: int, gpus: list[int]) -> bool:
    """Tell whether one of the GPUs is on a node that was drained since they were held, by an instant before it is over."""
    over_ms, node_of, closes_ms = says_over_ms(state, workload), state.gpu.cells.node, state.node.cells.drain_ms
    return any(0 < closes_ms[node_of[gpu]] < over_ms for gpu in gpus)


def start(
    state: State, emit: Emit, shares: Shares, workload: int, gpus: list[int], *, hold: int = schema.HOLD_NONE, promised_ms: int = 0,
    ask: Ask | None = None,
) -> None:  # fmt: skip
    """Write the start of a workload on ``gpus``, which were held for it for that reason; ``ask`` is what it is in another pool.

    ``promised_ms``: it is protected for so long, funded or not, as a plan says.
    """
    ask = ask_of(state, workload) if ask is None else ask
    decision = _start_of(state, shares, workload, gpus, hold, promised_ms, ask)
    emit(decision)
    _count_start(state, shares, workload, decision.reserved_gpu_us)


def _start_of(
    state: State, shares: Shares, workload: int, gpus: list[int], hold: int, promised_ms: int, ask: Ask
) -> RunPlaced:
    """Return the start as a decision."""
    table, now_ms = state.workload.cells, state.counters.time_ms
    leaf, pool, milli, min_runtime_ms = ask.budget, ask.pool, ask.gpus_milli, ask.min_runtime_ms
    funded, why = fundable(state, shares, workload, 0, ask)
    if hold == schema.HOLD_FUNDED and why is Funding.ABOVE_ALLOWANCE:
        funded, why = True, Funding.WITHIN_ALLOWANCE  # it was when its GPUs were freed; its certificate says so
    protected_ms = min_runtime_ms if funded else min(min_runtime_ms, state.pool.cells.quantum_ms[pool])
    protected_ms = max(protected_ms, promised_ms)
    reserved = gpu_us(milli, max(min_runtime_ms, promised_ms)) if funded else 0
    return RunPlaced(
        workload=state.workload.keys[workload],
        run=table.run_no[workload] + 1,
        budget=state.budget_path(leaf),
        pool=state.pool.keys[pool],
        gpus_milli=milli,
        pieces=pieces_of(state, gpus, min(MILLI, ask.milli_per_node)),
        payer=(Payer.BUDGET if funded else Payer.UNFUNDED).value,
        why=why.value,
        protected_until_ms=now_ms + protected_ms,
        reserved_gpu_us=reserved,
        resume_from_ms=table.progress_ms[workload],
        allowance_milli=int(shares.allowance[leaf]),
        running_milli=int(shares.running[leaf]),
        beneficiary=hold in (schema.HOLD_FUNDED, schema.HOLD_UNFUNDED),
    )


def _count_start(state: State, shares: Shares, workload: int, reserved_us: int) -> None:
    """Let shares have a start in the pool in which the workload is now."""
    add_running(state, shares, workload, 1)
    line = state.workload.cells.budget[workload]
    while reserved_us and line >= 0:
        shares.reserved_us[line] += reserved_us
        line = state.budget.cells.parent[line]


def start_listed(state: State, emit: Emit, shares: Shares, starts: serve.Starts) -> int:
    """Write the starts that a kernel has listed, and empty the list; ``shares`` has them already. Returns how many there were."""
    count = int(starts.counts[0])
    if not count:
        return 0
    table, rows, first = state.workload, starts.workload[:count].copy(), starts.first
    pool, gpus, names = int(table.pool[rows[0]]), starts.gpus[: first[count]].copy(), table.keys_of(rows)
    said = placed.said_of(count, len(gpus))
    pieces = placed.tell(
        starts, count, state.counters.time_ms, int(state.pool.quantum_ms[pool]), state.waits, table.run_no, table.progress_ms,
        state.gpu.node, state.gpu.position, said,
    )  # fmt: skip
    node = said.node[:pieces]
    meaning = Started(
        rows, names, said.run_no, said.milli, said.protected_until_ms, said.reserved, said.resume_ms,
        np.where(said.funded, schema.PAYER_BUDGET, schema.PAYER_UNFUNDED), node, gpus, said.each, said.start,
    )  # fmt: skip
    columns: dict[str, Column] = {
        "workload": Texts(names),
        "run": Numbers(said.run_no),
        "budget": texts_of(said.leaf, state.budget.used, state.budget_paths),
        "pool": Texts((state.pool.keys[pool],), np.zeros(count, dtype=np.int64)),
        "gpus_milli": Numbers(said.milli),
        "pieces": Places(
            said.first_piece, texts_of(node, state.node.used, state.node.keys_of), said.first_gpu[: pieces + 1],
            said.position, said.piece_each[:pieces],
        ),
        "payer": Texts((_UNFUNDED, _BUDGET), said.funded),
        "why": Texts(_WHYS, starts.why[:count].copy()),
        "protected_until_ms": Numbers(said.protected_until_ms),
        "reserved_gpu_us": Numbers(said.reserved_us),
        "resume_from_ms": Numbers(said.resume_ms),
        "allowance_milli": Numbers(shares.allowance[said.leaf]),
        "running_milli": Numbers(starts.running[:count].copy()),
    }  # fmt: skip
    starts.counts[0] = 0
    emit.listed(Listed(RunPlaced, count, columns), meaning)
    return count
