"""Which record was the newest at an instant: the search by halves against a walk over all records."""

from __future__ import annotations

import asyncio

import pytest

from apportion.adapters.logs.moments import opening, seq_at
from apportion.adapters.simulation.driver import Logs
from apportion.core.engine import Core
from tests.projections.history import Story, job, opened, simulated
from tests.proving.keeping import Decisions, Events


def times(logs: Logs) -> list[int]:
    """Return the time of each record, as the core gives it."""
    core, answers, found = Core.new(), iter(logs.batches), []
    for record in logs.records:
        ticks = core.fold(record)
        found.append(core.time_ms)
        if ticks:
            core.trust(next(answers).body, check=False)
    return found


def stored_story() -> Story:
    """Return a story in the server's time."""
    story = opened(time_source="stored")
    for number in range(12):
        story.say(job(f"w{number}"), "ann", after_ms=700)
        if number % 3 == 0:
            story.tick(after_ms=number)
    return story


@pytest.mark.parametrize("parts", [1, 3])
def test_an_instant_names_the_last_record_at_or_before_it(parts: int) -> None:
    for logs in (simulated(3, hours=6, nodes=2), stored_story().logs):
        known, events, decisions = times(logs), Events(logs.records), Decisions(logs.batches, parts)
        step = max(1, len(known) // 60)
        for at_ms in {moment + off for moment in known[::step] for off in (-1, 0, 1)}:
            expected = sum(1 for each in known if each <= at_ms)
            if known[0] <= at_ms <= known[-1]:
                assert asyncio.run(seq_at(events, decisions, at_ms)) == expected


def test_instants_outside_the_log_are_told() -> None:
    logs = stored_story().logs
    known, events, decisions = times(logs), Events(logs.records), Decisions(logs.batches)

    with pytest.raises(ValueError, match="opened after that"):
        asyncio.run(seq_at(events, decisions, known[0] - 1))
    with pytest.raises(ValueError, match="ends before that"):
        asyncio.run(seq_at(events, decisions, known[-1] + 1))
    with pytest.raises(ValueError, match="opened the log"):
        asyncio.run(opening(Events([])))
