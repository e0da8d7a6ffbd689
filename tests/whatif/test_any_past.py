"""What-if of pasts in which anything happens: people, nodes and agents that do everything, in two pools, under all policies.

The stories are those that the core's own properties are tested with. Nothing changed must be history, decision for decision,
wherever the range begins; and what is measured of decisions must be what the ledger of the core itself has booked.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from apportion.adapters.simulation.driver import Logs
from apportion.core import ledger
from apportion.core.envelope import StoredBatch
from tests.core.chaos import Chaos, Seeded
from tests.core.story import Story
from tests.whatif.past import Past, again, cut, past_of

POLICIES: tuple[tuple[Any, ...], ...] = (("fair",), ("fair", "horizon"), ("fifo", "priority", "drf", "fair_tree", "fair"))
SEEDS = range(6)
ACTIONS = 160


@functools.cache
def told(seed: int) -> Logs:
    """Return both logs of a story: budgets that move, grants, drains, lost nodes, requeues, services, moves, rubbish."""
    policies: Sequence[Any] = POLICIES[seed % len(POLICIES)]
    story = Story()
    chaos = Chaos(story, Seeded(seed), policies, serving=seed % 2 == 1)
    story.watchers = (chaos,)
    chaos.begin()
    for _ in range(ACTIONS):
        chaos.act()
    if seed % 3 == 0:
        chaos.in_pieces()
        chaos.breathing()
    if seed % 5 == 0:
        chaos.planned()
    batches = sorted(story.batches.items())
    return Logs(story.records, [StoredBatch(number, seq, body) for number, (seq, body) in enumerate(batches, 1)])


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_changed_is_history_whatever_happened(seed: int, part: float) -> None:
    past = past_of(told(seed), part)

    played, found = again(past)

    assert played.cycles == len(past.history.cycles) > 5
    assert played.differing == 0, played.first_difference
    assert played.extra_cycles == played.world.remade_runs == 0
    assert found.before.accounts == found.after.accounts
    assert found.moved == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_in_which_every_run_is_made_again_is_played_to_its_end(seed: int) -> None:
    """The model meets runs in every state: starting, stopping, moved, of services, on nodes that come and go."""
    past = past_of(told(seed), 0.3)

    played, found = again(past, remake_all=True)

    assert played.core.time_ms == past.history.to_ms
    assert found.after.supply_gpu_us == found.before.supply_gpu_us


@pytest.mark.parametrize("part", [0.0, 0.4])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_measured_of_decisions_is_what_the_ledger_has_booked(seed: int, part: float) -> None:
    """The oracle is the core's double entry at both ends of the range; both are brought to the range's instants."""
    past = past_of(told(seed), part)

    assert measured(past) == booked(past, told(seed))


@pytest.mark.parametrize("part", [0.0, 0.4])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_time_is_given_idle_or_down_in_both_worlds(seed: int, part: float) -> None:
    """Up to the last cycle of history: there both worlds have books."""
    whole = past_of(told(seed), part)
    last = whole.history.cycles[-1].seq
    past = past_of(Logs(told(seed).records[:last], told(seed).batches), part)

    _played, found = again(past, remake_all=True)

    for world in (found.before, found.after):
        assert world.books_ms == world.to_ms == past.history.to_ms
        given = world.total.funded_gpu_us + world.total.unfunded_gpu_us
        assert world.supply_gpu_us == given + world.idle_gpu_us + world.down_gpu_us


def measured(past: Past) -> dict[str, tuple[int, int]]:
    """Return funded and unfunded GPU time per budget and pool as what-if measures it."""
    accounts = past.before.accounts
    return {
        name: (one.funded_gpu_us, one.unfunded_gpu_us)
        for name, one in accounts.items()
        if one.funded_gpu_us or one.unfunded_gpu_us
    }


def booked(past: Past, logs: Logs) -> dict[str, tuple[int, int]]:
    """Return the same as the accounts of the core say, each budget's own in each pool, without those below it."""
    start = past.core()
    end, rest = cut(logs, 1.0)
    for record in rest.records:
        end.fold(record)
    found: dict[str, tuple[int, int]] = {}
    for core, sign in ((start, -1), (end, 1)):
        ledger.accrue(core.state, core.time_ms)
        table = core.state.budget
        for row in table.row_of.values():
            below = [other for other in table.row_of.values() if int(table.parent[other]) == row]
            funded, unfunded = (
                int(column[row]) - sum(int(column[other]) for other in below) for column in (table.charged_us, table.unfunded_us)
            )
            name = f"{core.state.budget_path(row)} in {core.state.pool.keys[int(table.pool[row])]}"
            was = found.get(name, (0, 0))
            found[name] = (was[0] + sign * funded, was[1] + sign * unfunded)
    return {name: both for name, both in found.items() if any(both)}
