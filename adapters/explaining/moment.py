"""The moment of a cycle: the core as it was before a tick, and the tick; and what the cycle then knew.

A pure function of both: each question gets a copy of the core, so a moment answers any number of them. ``Cycle`` is the state after
the cycle's own phases up to its explanations, with the shares and the reservations by which it decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from apportion.adapters.past.driving import OnProgress
from apportion.adapters.past.replaying import core_from, state_at
from apportion.core.decisions import AnyDecision
from apportion.core.engine import Core, emit_into
from apportion.core.envelope import Record
from apportion.core.errors import ApportionError
from apportion.core.policy import funding
from apportion.core.policy.cycle import before_starts
from apportion.core.policy.emit import Emit
from apportion.core.policy.funding import Shares
from apportion.core.policy.placing import place_all
from apportion.core.policy.reserving import Reservations
from apportion.core.policy.starting import count_held_as_running
from apportion.core.ports import DecisionLog, EventLog
from apportion.core.state.copying import copy_of
from apportion.core.state.state import State


class NotATick(ApportionError):
    """The record asked about is no tick that the core accepted, so there is no cycle to explain."""


@dataclass(frozen=True)
class Cycle:
    """What a cycle knew when it came to explain who waits. Nothing may be folded into its state any more."""

    state: State
    shares: Shares
    reservations: list[Reservations]  # by pool
    decisions: Sequence[AnyDecision]  # explanations left out


@dataclass(frozen=True)
class Moment:
    """A core whose next record is a tick. Whoever needs a core of his own takes a copy."""

    core: Core
    tick: Record

    def copy(self) -> Core:
        """Return a core before the tick, to do with as one likes."""
        return Core(copy_of(self.core.state))

    @cached_property
    def cycle(self) -> Cycle:
        """Run the cycle up to its explanations, once. Raises ``NotATick``."""
        core = self.copy()
        emit = _begun(core, self.tick)
        state = core.state
        shares = before_starts(state, emit)
        reservations = place_all(state, emit, shares)
        funding.demote_spent(state, emit, shares)
        return Cycle(state, shares, reservations, emit.decisions)

    @cached_property
    def before_starts(self) -> Cycle:
        """Run the cycle up to where it looks for places, once: nobody has started or was asked to go. Raises ``NotATick``."""
        core = self.copy()
        emit = _begun(core, self.tick)
        shares = before_starts(core.state, emit)
        count_held_as_running(core.state, shares)
        return Cycle(core.state, shares, [Reservations.none(core.state)] * core.state.pool.used, emit.decisions)


def _begun(core: Core, tick: Record) -> Emit:
    if not core.fold(tick):
        raise NotATick(f"record {tick.seq:,} is no tick that the core accepted, so no cycle was decided at it")
    return emit_into(core.state)


async def moment_at(
    events: EventLog, decisions: DecisionLog, seq: int, snapshot: bytes | None = None, progress: OnProgress | None = None
) -> Moment:
    """Return the moment of the tick at ``seq``, from a snapshot before it, trusting the decisions stored up to it.

    Raises ``ApportionError`` and ``ValueError`` as ``replaying.state_at``.
    """
    core = await state_at(events, decisions, seq - 1, snapshot, progress) if seq > 1 else core_from(None)
    (tick,) = await events.read(seq - 1, 1)
    return Moment(core, tick)
