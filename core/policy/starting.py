"""A start: the decision that gives a workload its GPUs, and the starts of those for whom GPUs were freed.

Decides who pays for the run and how long it is protected, from what the budget may pay now; the same for every policy. GPUs are
chosen before, by whoever calls. Beside the decision it keeps ``Shares`` current, so that the next one sees it.
"""

from __future__ import annotations

import numpy as np

from apportion.core.decisions import GpusReserved, Piece, RunPlaced
from apportion.core.kernels import serve
from apportion.core.policy.emit import Emit
from apportion.core.policy.fitting import has_room
from apportion.core.policy.funding import ANSWERS, Shares, fundable
from apportion.core.policy.reserving import says_over_ms
from apportion.core.reasons import Funding, Payer
from apportion.core.state import schema
from apportion.core.state.holdings import held_gpus, pieces_of, runs_on_node
from apportion.core.state.state import State
from apportion.core.units import MILLI, gpu_us


def count_held_as_running(state: State, shares: Shares) -> None:
    """A budget whose GPUs are being freed for it has them already, as far as order and funding go."""
    for row in _held(state):
        add_running(state, shares, row, 1)


def _held(state: State) -> list[int]:
    """Return the workloads that GPUs are held for, in queue order."""
    table = state.workload
    held = np.flatnonzero(table.column("state") == schema.HELD)
    order = np.lexsort((table.event_seq[held], -table.priority[held], table.budget[held])) if len(held) else held
    return [int(row) for row in held[order]]


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
    for row in _held(state):
        gpus = held_gpus(state, row)
        milli_each = min(MILLI, int(state.workload.milli_per_node[row]))
        short = len(gpus) * milli_each != int(state.workload.gpus_milli[row])
        free = all(int(state.gpu.used_milli[gpu]) + milli_each <= MILLI for gpu in gpus)
        room = has_room(state, row, gpus)
        gone = short or any(int(state.gpu.out[gpu]) for gpu in gpus) or _drained_before_its_end(state, row, gpus)
        if gone or (free and not room and not _stopping_on(state, gpus)):
            emit(GpusReserved(workload=state.workload.keys[row], pieces=()))
            add_running(state, shares, row, -1)
        elif free and room:
            add_running(state, shares, row, -1)
            start(state, emit, shares, row, gpus, hold=int(state.workload.hold[row]))


def _stopping_on(state: State, gpus: list[int]) -> bool:
    """Tell whether a run that holds something of the GPUs' nodes is ending."""
    nodes = dict.fromkeys(int(state.gpu.node[gpu]) for gpu in gpus)
    return any(int(state.run.state[run]) == schema.STOPPING for node in nodes for run in runs_on_node(state, node))


def _drained_before_its_end(state: State, workload: int, gpus: list[int]) -> bool:
    """Tell whether one of the GPUs is on a node that was drained since they were held, by an instant before it is over."""
    over_ms = says_over_ms(state, workload)
    closes_ms = [int(state.node.drain_ms[int(state.gpu.node[gpu])]) for gpu in gpus]
    return any(0 < at_ms < over_ms for at_ms in closes_ms)


def start(state: State, emit: Emit, shares: Shares, workload: int, gpus: list[int], *, hold: int = schema.HOLD_NONE) -> None:
    """Write the start of a workload on ``gpus``, which were held for it for that reason."""
    table, now_ms = state.workload, state.counters.time_ms
    leaf, pool, milli = int(table.budget[workload]), int(table.pool[workload]), int(table.gpus_milli[workload])
    min_runtime_ms = int(table.min_runtime_ms[workload])
    funded, why = fundable(state, shares, workload)
    if hold == schema.HOLD_FUNDED and why is Funding.ABOVE_ALLOWANCE:
        funded, why = True, Funding.WITHIN_ALLOWANCE  # it was when its GPUs were freed; its certificate says so
    protected_ms = min_runtime_ms if funded else min(min_runtime_ms, int(state.pool.quantum_ms[pool]))
    reserved = gpu_us(milli, min_runtime_ms) if funded else 0
    emit(
        RunPlaced(
            workload=table.keys[workload],
            run=int(table.run_no[workload]) + 1,
            budget=state.budget_path(leaf),
            pool=state.pool.keys[pool],
            gpus_milli=milli,
            pieces=pieces_of(state, gpus, min(MILLI, int(table.milli_per_node[workload]))),
            payer=(Payer.BUDGET if funded else Payer.UNFUNDED).value,
            why=why.value,
            protected_until_ms=now_ms + protected_ms,
            reserved_gpu_us=reserved,
            resume_from_ms=int(table.progress_ms[workload]),
            allowance_milli=int(shares.allowance[leaf]),
            running_milli=int(shares.running[leaf]),
            beneficiary=hold in (schema.HOLD_FUNDED, schema.HOLD_UNFUNDED),
        )
    )
    add_running(state, shares, workload, 1)
    line = leaf
    while reserved and line >= 0:
        shares.reserved_us[line] += reserved
        line = int(state.budget.parent[line])


def start_listed(state: State, emit: Emit, shares: Shares, starts: serve.Starts) -> int:
    """Write the starts that a kernel has listed, and empty the list; ``shares`` has them already. Returns how many there were."""
    count = int(starts.counts[0])
    if not count:
        return 0
    table, pools, now_ms = state.workload, state.pool, state.counters.time_ms
    rows = starts.workload[:count]
    leaves, pool, milli, min_runtime_ms = table.budget[rows], table.pool[rows], table.gpus_milli[rows], table.min_runtime_ms[rows]
    funded = starts.why[:count] == serve.WITHIN_ALLOWANCE
    protected_ms = np.where(funded, min_runtime_ms, np.minimum(min_runtime_ms, pools.quantum_ms[pool]))
    reserved_us = np.where(funded, milli * min_runtime_ms, 0)  # bounded where it was submitted, as for one
    gpus = starts.gpus[: int(starts.first[count])]
    nodes, positions, first = state.gpu.node[gpus].tolist(), state.gpu.position[gpus].tolist(), starts.first[: count + 1].tolist()
    paths = {leaf: state.budget_path(leaf) for leaf in leaves.tolist()}
    payers = {answer: (Payer.BUDGET if answer == serve.WITHIN_ALLOWANCE else Payer.UNFUNDED).value for answer in ANSWERS}
    words = {answer: why.value for answer, why in ANSWERS.items()}
    names, node_names, pool_names = table.keys, state.node.keys, pools.keys
    placed = list[RunPlaced]()
    columns = (
        rows, table.run_no[rows] + 1, leaves, pool, milli, np.minimum(table.milli_per_node[rows], MILLI), starts.why[:count],
        now_ms + protected_ms, reserved_us, table.progress_ms[rows], shares.allowance[leaves], starts.running[:count],
    )  # fmt: skip
    for number, (row, run, leaf, of_pool, asked, each, why, until_ms, reserved, resume_ms, allowance, running) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        begin, end = first[number], first[number + 1]
        if nodes[begin] == nodes[end - 1]:
            pieces: tuple[Piece, ...] = (Piece(node_names[nodes[begin]], tuple(positions[begin:end]), each),)
        else:
            pieces = pieces_of(state, gpus[begin:end].tolist(), each)
        placed.append(
            RunPlaced(
                workload=names[row],
                run=run,
                budget=paths[leaf],
                pool=pool_names[of_pool],
                gpus_milli=asked,
                pieces=pieces,
                payer=payers[why],
                why=words[why],
                protected_until_ms=until_ms,
                reserved_gpu_us=reserved,
                resume_from_ms=resume_ms,
                allowance_milli=allowance,
                running_milli=running,
            )
        )
    starts.counts[0] = 0
    emit.starts(placed)
    return count
