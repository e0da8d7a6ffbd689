"""Small pasts for the tests of what-if: a simulated cluster's logs, cut where the range begins."""

from __future__ import annotations

import functools
from typing import NamedTuple

from apportion.adapters.simulation.driver import Logs, Simulation, replay
from apportion.adapters.simulation.faults import Faults
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.difference import Difference, difference
from apportion.adapters.whatif.history import History, Reader
from apportion.adapters.whatif.measures import Measured, Measures
from apportion.adapters.whatif.playing import Change, Play, Played
from apportion.core.decisions import CycleBatch, RunClosed, RunPlaced, decode_batch
from apportion.core.engine import Core
from tests.simulation.worlds import HOUR_MS, Setting, world_of


class Past(NamedTuple):
    """A core at the beginning of a range, what came after, and what was measured of it."""

    snapshot: bytes
    history: History
    before: Measured
    logs: Logs

    def core(self) -> Core:
        return Core.from_snapshot(self.snapshot)


def cut(logs: Logs, part: float) -> tuple[Core, Logs]:
    """Return the core after a part of the cycles, and the logs after it."""
    cycles = max(1, int(len(logs.batches) * part))
    seq = logs.batches[cycles - 1].input_seq
    core = replay(Logs(logs.records[:seq], logs.batches[:cycles]), verify=False)
    return core, Logs(logs.records[seq:], logs.batches[cycles:])


def past_of(logs: Logs, part: float = 0.0) -> Past:
    """Return the past that begins after a part of the cycles."""
    core, rest = cut(logs, part)
    measures = Measures(core, core.time_ms)
    reader = Reader(core, measures.take)
    reader.take(rest.records, rest.batches)
    history = reader.finish()
    return Past(core.snapshot(), history, measures.finish(history.to_ms), rest)


@functools.cache
def played_logs(setting: Setting) -> Logs:
    """Return both logs of a small world, not drained."""
    world = world_of(setting)
    arrive = Faults(setting.seed, setting.faults) if setting.faults is not None else None
    simulation = Simulation(world, arrive=arrive)
    return simulation.run(world.options.start_ms + setting.hours * HOUR_MS, setting.cycle_ms)


def again(
    past: Past, change: Change | None = None, *, remake_all: bool = False, needs: Needs | None = None
) -> tuple[Played, Difference]:
    """Play a past again; return the play and what is different."""
    needs = needs or Needs(past.history.recorder)
    core = past.core()
    measures = Measures(core, past.history.to_ms, past.before.books_ms)
    play = Play(past.history, needs, change or Change(), measures.take, remake_all=remake_all, compare=True)
    played = play.run()
    return played, difference(past.history, past.before, measures.finish(), played, needs)


def lives(batches: list[CycleBatch]) -> list[tuple[object, ...]]:
    """Return what happened to runs: each start with its GPUs, each end."""
    found: list[tuple[object, ...]] = []
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                found.append((batch.time_ms, "placed", decision.workload, decision.run, decision.pieces, decision.payer))
            elif isinstance(decision, RunClosed):
                found.append((decision.end_ms, decision.outcome, decision.workload, decision.run, decision.lost_gpu_us))
    return found


def stored(logs: Logs) -> list[CycleBatch]:
    """Return the batches of a log."""
    return [decode_batch(batch.body) for batch in logs.batches]
