"""Simulated clusters under trouble, seeds printed on failure: nothing is lost, nothing is held twice, the books agree."""

from __future__ import annotations

import pytest

from apportion.adapters.simulation.driver import Logs, Simulation, replay, simulate
from apportion.adapters.simulation.faults import EVERYTHING_TWICE, ROUGH
from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.trouble import QUIET
from apportion.core.decisions import Rejected, RunClosed, RunPlaced, WorkloadRejected, decode_batch
from apportion.core.engine import Core
from tests.simulation.worlds import HOUR_MS, MINUTE_MS, Setting, play, world_of

STORMS = [
    Setting(1, nodes=2, largest=16, idle_hold_ms=3 * MINUTE_MS),
    Setting(2, nodes=4, hours=5, largest=32, demand_milli=2_500),
    Setting(5, nodes=3, gpus_per_node=4, largest=4, cycle_ms=20_000),
    Setting(8, nodes=2, largest=16, demand_milli=900),
]
ROUGH_STORMS = [
    Setting(3, nodes=2, hours=6, faults=ROUGH, cycle_ms=30_000),
    Setting(6, nodes=3, hours=5, faults=ROUGH, time_source="stored", idle_hold_ms=5 * MINUTE_MS),
    Setting(9, nodes=2, hours=5, faults=ROUGH, time_source="stored", cycle_ms=90_000),
]


def name(setting: Setting) -> str:
    return f"seed{setting.seed}"


def test_in_a_quiet_world_every_job_succeeds_at_once_and_in_full() -> None:
    played = play(Setting(4, nodes=3, hours=5, demand_milli=1_500, habits=CALM, rates=QUIET))
    assert played.drained
    played.checker.finish()
    world = played.simulation.world
    assert world.complaints == []
    assert set(world.outcomes.values()) == {"succeeded"}
    assert len(world.outcomes) == world.submitted
    assert played.checker.counts["Rejected"] == 0
    assert played.checker.counts["run node_lost"] == 0


@pytest.mark.parametrize("setting", STORMS, ids=name)
def test_in_a_storm_everything_comes_to_an_end(setting: Setting) -> None:
    played = play(setting)
    assert played.drained
    played.checker.finish()
    assert played.simulation.world.complaints == []
    assert len(played.simulation.world.outcomes) == played.simulation.world.submitted
    counts = played.checker.counts
    assert counts["run node_lost"] + counts["run failed"] > 0, "a storm that nobody noticed tests nothing"
    if setting.idle_hold_ms is not None:
        assert counts["RunIdle"], "nobody fell asleep"
        assert counts["funding idle_hold"], "nobody lost anything by it"


@pytest.mark.parametrize("setting", ROUGH_STORMS, ids=name)
def test_late_doubled_disordered_and_unreadable_events_lose_nothing(setting: Setting) -> None:
    played = play(setting)
    assert played.drained
    assert played.simulation.world.complaints == []
    assert played.checker.counts["refused broken_json"] > 0
    assert played.checker.counts["refused stale"] > 0
    assert replay(played.simulation.logs).digest() == played.simulation.core.digest()


def test_every_event_twice_decides_the_same() -> None:
    setting = Setting(7, nodes=2, hours=6)
    once = play(setting)
    twice = play(setting._replace(faults=EVERYTHING_TWICE))
    assert twice.drained

    def told(logs: Logs) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for stored in logs.batches:
            batch = decode_batch(stored.body)
            for decision in batch.decisions:
                if isinstance(decision, RunPlaced):
                    found.append((batch.time_ms, decision.workload, decision.run, decision.pieces, decision.payer))
                elif isinstance(decision, RunClosed):
                    spent = (decision.charged_gpu_us, decision.unfunded_gpu_us, decision.refunded_gpu_us)
                    found.append((decision.workload, decision.run, decision.outcome, decision.end_ms, spent))
        return found

    assert told(once.simulation.logs) == told(twice.simulation.logs)
    assert once.simulation.core.last_batch is not None
    assert twice.simulation.core.last_batch is not None
    assert once.simulation.core.last_batch.books == twice.simulation.core.last_batch.books
    copies = [
        decision
        for stored in twice.simulation.logs.batches
        for decision in decode_batch(stored.body).decisions
        if isinstance(decision, (Rejected, WorkloadRejected))
    ]
    assert len(copies) > len(once.simulation.world.outcomes), "copies are visible"


def test_equal_seeds_give_equal_bytes_whatever_the_stored_times() -> None:
    setting = Setting(11, nodes=2, hours=6)
    until_ms = world_of(setting).options.start_ms + 6 * HOUR_MS
    first = simulate(world_of(setting), until_ms)
    second = Simulation(world_of(setting))
    second.logs = _Shifted()
    second.run(until_ms)
    assert [(r.subject, r.body) for r in first.records] == [(r.subject, r.body) for r in second.logs.records]
    assert [batch.body for batch in first.batches] == [batch.body for batch in second.logs.batches]
    other = simulate(world_of(setting._replace(seed=12)), until_ms)
    assert other.batches[-1].body != first.batches[-1].body


class _Shifted(Logs):
    """A log whose server has another clock; in stated time that must not matter."""

    def append(self, events):  # type: ignore[no-untyped-def]
        records = [record._replace(stored_ms=7 * record.seq) for record in super().append(events)]
        self.records[len(self.records) - len(records) :] = records
        return records


def test_a_snapshot_anywhere_continues_to_the_same_state() -> None:
    setting = Setting(13, nodes=2, hours=4)
    simulation = Simulation(world_of(setting))
    snapshots: list[bytes] = []

    def keep(batch: object) -> None:
        if simulation.core.cycle % 61 == 0:
            snapshots.append(simulation.core.snapshot())

    simulation.watch = keep
    simulation.run(simulation.world.options.start_ms + 5 * HOUR_MS)
    logs, digest = simulation.logs, simulation.core.digest()
    assert snapshots
    for data in snapshots:
        for verify in (True, False):
            core = replay(logs, verify=verify, core=Core.from_snapshot(data))
            assert core.digest() == digest
            assert core.snapshot() == simulation.core.snapshot()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_storms(seed: int) -> None:
    setting = Setting(
        seed,
        nodes=(2, 3, 6, 5)[seed % 4],
        gpus_per_node=8 if seed % 5 else 4,
        largest=(8, 16, 32)[seed % 3],
        demand_milli=(900, 1_800, 3_000)[seed % 3],
        faults=(None, EVERYTHING_TWICE, ROUGH)[seed // 3 % 3],
        time_source=("stated", "stored")[seed // 9 % 2],  # type: ignore[arg-type]
        cycle_ms=(60_000, 20_000, 90_000, 7_000)[seed // 2 % 4],
    )
    played = play(setting)
    assert played.drained
    assert played.simulation.world.complaints == []
    if setting.faults is not ROUGH:
        played.checker.finish()
    assert replay(played.simulation.logs).digest() == played.simulation.core.digest()
