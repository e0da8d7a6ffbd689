"""What a core holds in place: its workloads, and its runs as attempts that go on.

Pure functions of a core's state, which they read and never write. A what-if takes over from here what began before its range, and a
run that leaves history in the middle of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.adapters.whatif.demand import Asked, Attempt, Recorder
from apportion.core.decisions import Piece
from apportion.core.state import schema
from apportion.core.state.holdings import gpus_of_run

if TYPE_CHECKING:
    from apportion.core.engine import Core


def note_in_place(core: Core, recorder: Recorder) -> dict[str, Attempt]:
    """Tell the recorder of the workloads that wait or run; returns the runs."""
    running: dict[str, Attempt] = {}
    state = core.state
    table, run = state.workload, state.run
    for name, row in table.row_of.items():
        service = bool(table.service[row])
        asked = Asked(
            state.budget_path(int(table.budget[row])), int(table.gpus_milli[row]), int(table.expected_runtime_ms[row]), 0,
            service, int(table.submit_ms[row]),
        )  # fmt: skip
        recorder.began_before(name, asked)
        at = int(table.run[row])
        if at < 0 or int(run.state[at]) == schema.ENDED:
            continue
        attempt = attempt_of(core, at)
        running[run.keys[at]] = attempt
        recorder.began_before(name, asked, run.keys[at], attempt)
        _note_idle(core, recorder, at)
    return running


def _note_idle(core: Core, recorder: Recorder, row: int) -> None:
    """Tell the recorder on which nodes of a run it does nothing, and since when."""
    state, run = core.state, core.state.run
    since_ms: dict[str, int] = {}
    alloc = int(run.first_alloc[row])
    while alloc >= 0:
        since_ms[state.node.keys[int(state.gpu.node[int(state.alloc.gpu[alloc])])]] = int(state.alloc.idle_ms[alloc])
        alloc = int(state.alloc.next[alloc])
    for at_ms, node in sorted((at_ms, node) for node, at_ms in since_ms.items() if at_ms):
        recorder.idleness.rests(run.keys[row], node, len(since_ms), at_ms)


def attempt_of(core: Core, row: int) -> Attempt:
    """Return what the core knows of a run in progress."""
    state, run = core.state, core.state.run
    held: dict[str, list[int]] = {}
    milli = 0
    alloc = int(run.first_alloc[row])
    while alloc >= 0:
        milli = int(state.alloc.milli[alloc])
        alloc = int(state.alloc.next[alloc])
    for gpu in gpus_of_run(state, row):
        held.setdefault(state.node.keys[int(state.gpu.node[gpu])], []).append(int(state.gpu.position[gpu]))
    pieces = tuple(Piece(node, tuple(gpus), milli) for node, gpus in held.items())
    workload = int(run.workload[row])
    progress_ms, resume_ms = int(state.workload.progress_ms[workload]), int(run.resume_ms[row])
    saved = int(run.checkpoint_gap_ms[row]) > 0
    saved_at_ms = int(run.checkpoint_ms[row]) if saved else 0
    return Attempt(
        int(run.placed_ms[row]), resume_ms, pieces, int(run.started_ms[row]),
        saved_at_ms - (progress_ms - resume_ms) if saved else 0, progress_ms if saved else 0, saved_at_ms,
        int(run.stop_by_ms[row]) and core.time_ms,
    )  # fmt: skip
