"""What is known of reasons beforehand is what asking for each would tell; what nodes offer is what counting them tells."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import event, given, settings
from hypothesis import strategies as st

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.adapters.comparing.setting import node_name
from apportion.core.decisions import encode_batch
from apportion.core.events import NodeCordoned
from apportion.core.policy import explaining
from apportion.core.state.asks import ask_of
from apportion.core.units import MILLI, MS_PER_HOUR

few = settings(derandomize=True, max_examples=12, deadline=None)


def played(world: World, minute: int) -> bytes:
    """Play one more minute, or an hour; returns the bytes of what was decided."""
    batch = world.cycle(MS_PER_HOUR if minute % 4 == 3 else 60_000).batch
    world.end(max(1, world.setting.nodes // 8))
    world.submit(world.setting.nodes // 4)
    return encode_batch(batch)


@few
@given(st.integers(6, 32), st.integers(1, 10_000))
def test_who_was_told_of_his_reservation_is_told_again_only_what_is_new(nodes: int, seed: int) -> None:
    found, told, quiet = explaining._were_told_so, list[list[bytes]](), 0

    def counted(*args: Any) -> list[bool]:
        nonlocal quiet
        answers = found(*args)
        quiet += sum(answers)
        return answers

    for way in (counted, lambda _state, _made, workloads, *_others: [False] * len(workloads)):
        world = World(nodes, seed)
        world.submit(nodes * 12)
        with mock.patch.object(explaining, "_were_told_so", way):
            told.append([played(world, minute) for minute in range(10)])
    assert told[0] == told[1]
    event(f"nothing new: {min(quiet, 3)}")


@few
@given(st.integers(4, 24), st.integers(1, 10_000), st.integers(1, 4))
def test_what_nodes_offer_is_what_they_have_counted_one_by_one(nodes: int, seed: int, minutes: int) -> None:
    world = World(nodes, seed)
    world.submit(nodes * 6)
    for minute in range(minutes):
        played(world, minute)
    for number in range(seed % 3):
        world.say(NodeCordoned(node=node_name(number)))
    state = world.core.state
    offers, in_service, free = explaining.Offers(state), [0] * nodes, [0] * nodes
    for gpu in range(state.gpu.used):
        if not int(state.gpu.out[gpu]):
            in_service[int(state.gpu.node[gpu])] += 1
            free[int(state.gpu.node[gpu])] += int(not state.gpu.used_milli[gpu] and not state.gpu.held_by[gpu])
    for workload in state.queue[: state.queued].tolist():
        ask = ask_of(state, workload)
        need = max(1, ask.milli_per_node // MILLI)
        assert offers.parts_for(ask) == sum(size >= need for size in in_service)
        one = {"largest_free_milli": max(free) * MILLI, "largest_node_milli": max(in_service) * MILLI}
        gang = {"nodes_free": sum(size * MILLI >= ask.milli_per_node for size in free), "nodes_needed": ask.nodes}
        assert offers.of(ask) == (gang if ask.nodes > 1 else one)
