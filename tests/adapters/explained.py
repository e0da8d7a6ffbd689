"""Stories that explanations are asked about: played in a pool of two budgets, up to the tick that is explained."""

from __future__ import annotations

from apportion.adapters.explaining.changes import Change
from apportion.adapters.explaining.moment import Moment
from apportion.adapters.explaining.trying import AFTER_STOPS
from apportion.core.decisions import CycleBatch, RunPlaced, RunStop
from apportion.core.engine import Core
from apportion.core.events import RunFinished
from apportion.core.state.copying import copy_of
from tests.core.scenario import Scenario
from tests.core.story import OPERATOR, Story

# After the next tick "job" waits: what is free is kept for g1.
RESERVED = """
        node n1 8
        node n2 8
        submit a1 A 8 limit=10h
        submit a2 A 4 limit=10h
        tick
        submit g1 B 16 limit=1h
        submit job A 4
"""


def played(text: str) -> Scenario:
    """Play a story in a pool of two budgets with half each; nothing it decides is looked at."""
    scenario = Scenario()
    scenario.shown = set()
    opening = ["open", "pool p", "budget A 50%", "budget B 50%"]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    scenario.play(list(enumerate(opening + lines, 1)))
    return scenario


def moment_of(scenario: Scenario) -> tuple[Moment, Core]:
    """Let the story's next cycle be decided; returns its moment, and a live core from before it."""
    before, again = (Core.from_snapshot(scenario.story.core.snapshot()) for _copy in range(2))
    scenario.story.tick()
    return Moment(before, scenario.story.records[-1]), again


def applied(scenario: Scenario, before: Core, change: Change) -> list[str]:
    """Say a change to a core that goes on, with agents that stop at once when asked; returns who starts."""
    story, live = Story(), Core(copy_of(before.state))
    story.core, story.now_ms, story.told = live, scenario.story.now_ms, scenario.story.told
    story.records = scenario.story.records[: live.seq]
    for who, event in change.edits:
        story.tell(event, who)
    batch = story.tick()
    assert not story.core.state.refused
    stops = [one for one in batch.decisions if isinstance(one, RunStop)]
    if change.outcome.starts == AFTER_STOPS:
        assert stops
        for stop in stops:
            lead = int(live.state.run.lead[live.state.run.row_of[f"{stop.workload}#{stop.run}"]])
            node = live.state.node.keys[lead]
            story.tell(RunFinished(workload=stop.workload, run=stop.run, node=node, outcome="stopped"), OPERATOR)
        batch = story.tick()
    return started(batch)


def started(batch: CycleBatch) -> list[str]:
    return [one.workload for one in batch.decisions if isinstance(one, RunPlaced)]
