"""The scenario tables in ``scenarios/*.txt``, one test each; and every answer the core can give stands in one of them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import pytest

from apportion.core import decisions as d
from apportion.core.reasons import Funding, NodeReason, Outcome, Pending, Refusal
from tests.core.scenario import Scenario, read

TABLES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
SCENARIOS = [(path.stem, title, lines) for path in TABLES for title, lines in read(path)]
_played: dict[str, Scenario] = {}


def play(file: str, title: str, lines: list[tuple[int, str]]) -> Scenario:
    """Play a scenario once; a later test that needs its batches does not play it again."""
    key = f"{file} {title}"
    if key not in _played:
        scenario = Scenario()
        scenario.play(lines)
        _played[key] = scenario
    return _played[key]


@pytest.mark.parametrize(
    ("file", "title", "lines"), [pytest.param(*entry, id=f"{entry[0]}-{entry[1][:60]}") for entry in SCENARIOS]
)
def test_the_core_decides_what_the_table_says(file: str, title: str, lines: list[tuple[int, str]]) -> None:
    scenario = play(file, title, lines)

    assert scenario.batches, "a scenario without a tick tells nothing"


def test_every_answer_of_the_core_stands_in_a_table() -> None:
    """Whoever meets a word of ``reasons.py`` finds a scenario that shows when it is said."""
    batches = [batch for entry in SCENARIOS for batch in play(*entry).batches]
    decided = [decision for batch in batches for decision in batch.decisions]
    given: dict[type[Enum], set[str]] = {
        Refusal: {x.reason for x in decided if isinstance(x, d.Rejected | d.WorkloadRejected)},
        Outcome: {x.outcome for x in decided if isinstance(x, d.RunClosed)},
        Pending: {x.reason for x in decided if isinstance(x, d.PendingExplained)},
        NodeReason: {x.reason for x in decided if isinstance(x, d.NodeSuspended)},
        Funding: {x.why for x in decided if isinstance(x, d.RunPlaced | d.FundingChanged)},
    }

    missing = {enum.__name__: {member.value for member in enum} - seen for enum, seen in given.items()}
    assert not any(missing.values()), f"no scenario shows {missing}"
