"""Doors: what a pool answers to a kind of submission, remembered for the kernel that folds long stretches of the log.

The kind is who asks, for which budget, in which one pool, for how many GPUs on how many nodes: ``kernels.stretch.door_of`` makes
a key of it. The answer is that of ``workloads.seat_in``, and stays true until a record changes a node, a budget, a right or a pool:
whoever folds one the slow way calls ``after``. Derived: no part of the state, and changes nothing in it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from apportion.core.envelope import Record, Whole, split_subject
from apportion.core.events import WorkloadSubmitted
from apportion.core.fold.access import may_charge
from apportion.core.fold.beats import UNREADABLE
from apportion.core.fold.workloads import Seat, seat_in
from apportion.core.kernels import keys, stretch
from apportion.core.state.state import State
from apportion.core.state.wishes import NO_WISH

MOST = 4_096  # kinds remembered
# types of records after which every answer is what it was
HARMLESS = frozenset(
    ("workload.submitted", "workload.cancelled", "workload.reprioritized", "run.started", "run.checkpointed", "run.progressed",
     "run.finished", "run.lost", "node.heartbeat", "node.cordoned", "node.uncordoned", "node.drained", "demand.observed",
     "forecast.published", "clock.tick")
)  # fmt: skip
_decoder = msgspec.json.Decoder(Whole[WorkloadSubmitted])


class Doors:
    """The answers remembered, as the kernel takes them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._key = np.empty(stretch.LONGEST_KEY, dtype=np.uint8)
        self.shut()

    def shut(self) -> None:
        """Forget all of them."""
        self._count = 0
        self.planned_ms = self._state.counters.planned_ms
        self.answers = np.zeros((MOST, stretch.DOOR), dtype=np.int64)
        self.names = np.zeros((MOST, keys.NAME_BYTES), dtype=np.uint8)
        self.slots = np.zeros(8 * MOST, dtype=np.int64)

    def after(self, record: Record) -> None:
        """Shut them unless a record that was folded leaves them as they were."""
        parts = split_subject(record.subject)
        if parts is not None and parts[1] not in HARMLESS:
            self.shut()

    def learn(self, record: Record, principal: int) -> bool:
        """Ask the door of a submission by this principal's row; False when it is known already, or there is none to remember."""
        if principal < 0:
            return False
        body = np.frombuffer(record.body, dtype=np.uint8)
        length, _at = stretch.door_of(body, 0, len(body), principal, self._key)
        if not length or keys.find(self._key, 0, length, self.names, self.slots) >= 0:
            return False
        try:
            event = _decoder.decode(record.body).data
        except UNREADABLE:
            return False
        answer = self._answer(event, self._state.principal.keys[principal])
        if answer is None:
            return False
        if self._count == MOST:
            self.shut()
        self.answers[self._count] = answer
        keys.rename(self._count, self._key[:length], self.names, self.slots)
        self._count += 1
        return True

    def _answer(self, event: WorkloadSubmitted, principal: str) -> tuple[int, ...] | None:
        """Return a row of answers; None when there will be one, but not yet."""
        state = self._state
        slow = (-1, *[0] * (stretch.DOOR - 1))
        asked = WorkloadSubmitted(
            workload=event.workload, budget=event.budget, pools=event.pools, gpus_milli=event.gpus_milli, nodes=event.nodes,
            kind=event.kind,
        )  # fmt: skip
        seat = seat_in(state, event.pools[0], asked)
        if not isinstance(seat, Seat) or seat.shape.wish != NO_WISH or not may_charge(state, principal, event.budget):
            return slow
        line = seat.line
        if state.budget.users[line]:
            line = state.budget.row_of.get(f"{state.budget.keys[line]}/~{principal}", -1)
            if line < 0:
                return None
        quantum_ms, cap_ms = int(state.pool.quantum_ms[seat.pool]), int(state.pool.protected_cap_ms[seat.pool])
        return seat.pool, line, seat.shape.nodes, seat.shape.milli_per_node, quantum_ms, cap_ms
