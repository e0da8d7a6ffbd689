"""One cycle told: what it knew is the log between two ticks, what it decided is stored, and what changed adds up."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from apportion.adapters.cli.cycles import KINDS, answer_of
from apportion.adapters.cli.output import Format, show
from apportion.adapters.past.replaying import state_at
from apportion.adapters.proving.waypoints import Waypoint
from apportion.adapters.seen.cycle import NoSuchCycle, Told, budget_books, cycle_of
from apportion.adapters.simulation.driver import Logs
from apportion.core.decisions import AnyDecision, RunPlaced, decode_batch
from tests.projections.history import simulated
from tests.proving.keeping import Decisions, Events
from tests.proving.test_proof import forged


@pytest.fixture(scope="module")
def logs() -> Logs:
    return simulated(67, hours=16, nodes=3, rough=False)


def tell(logs: Logs, cycle: int | None = None, seq: int | None = None, **more: Any) -> Told:
    return asyncio.run(cycle_of(Events(logs.records), Decisions(logs.batches), cycle, seq, **more))


def state(logs: Logs, seq: int) -> Any:
    return asyncio.run(state_at(Events(logs.records), Decisions(logs.batches), seq)).state


def test_a_cycle_is_told_as_the_logs_have_it(logs: Logs) -> None:
    for number in (1, 2, 200, 411, len(logs.batches)):
        told = tell(logs, number)
        stored = decode_batch(logs.batches[number - 1].body)
        before = decode_batch(logs.batches[number - 2].body) if number > 1 else None
        from_seq = before.seq if before is not None else 0
        known = logs.records[from_seq : stored.seq]

        assert (told.batch, told.difference, told.last_cycle) == (stored, None, len(logs.batches))
        assert sum(told.counts.values()) == len(known)
        assert told.counts["clock.tick"] == 1
        assert told.records == [record for record in known if not record.subject.endswith("node.heartbeat")]
        if before is not None and told.before is not None:
            assert (told.digest_before, told.chain_before) == (before.digest, before.chain)
            assert (told.before.seq, told.before.time_ms, told.before.cycle) == (before.seq, before.time_ms, before.cycle)


def test_what_changed_is_the_difference_of_the_books(logs: Logs) -> None:
    for number in (2, 150, 300):
        told = tell(logs, number)
        for pool, books in zip(told.pools, told.batch.books, strict=True):
            now = {name: pool[f"{name}_gpu_us"] for name in ("supply", "down", "idle", "unfunded", "funded")}
            assert now == {name: getattr(books, name) for name in now}
            change = {name: pool[f"change_{name}_gpu_us"] for name in now}
            assert change["supply"] == change["down"] + change["idle"] + change["unfunded"] + change["funded"]
        was, now_books = budget_books(state(logs, told.before.seq if told.before else 0)), budget_books(state(logs, told.batch.seq))
        changed = {f"{row['pool']}:{row['budget']}": row for row in told.budgets}
        for key, row in now_books.items():
            if key not in changed:
                assert row == was[key]
            else:
                assert all(changed[key][f"change_{name}"] == row[name] - was.get(key, {}).get(name, 0)
                           for name in row if name not in ("pool", "budget"))  # fmt: skip


def test_a_cycle_is_found_by_a_record_it_knew(logs: Logs) -> None:
    tick, following = logs.batches[99].input_seq, logs.batches[100].input_seq

    assert tell(logs, seq=tick).batch.cycle == 100
    assert tell(logs, seq=tick + 1).batch.cycle == tell(logs, seq=following).batch.cycle == 101
    assert tell(logs).batch.cycle == len(logs.batches)


def test_what_is_no_cycle_is_told(logs: Logs) -> None:
    with pytest.raises(NoSuchCycle, match="the log has cycles 1 to"):
        tell(logs, len(logs.batches) + 1)
    with pytest.raises(NoSuchCycle, match="no cycle was decided at or after"):
        tell(logs, seq=logs.batches[-1].input_seq + 1)
    with pytest.raises(NoSuchCycle, match="no cycle has been decided"):
        tell(Logs(logs.records[:3], []))


def test_a_changed_cycle_is_derived_otherwise_and_shown_with_both_sides(logs: Logs) -> None:
    changed = Logs(list(logs.records), list(logs.batches))
    seq = forged(changed, 100)

    told = tell(changed, seq=seq)

    assert told.difference is not None
    assert (told.difference["what"], told.difference["fields"]) == ("decision", ["protected_until_ms"])
    answer = answer_of(told, 20)
    assert answer.code == 1
    assert any("DIFFERENT" in line for line in answer.after)
    assert not answer.document["derived_again"]["same"]


def test_it_begins_from_a_state_that_is_kept(logs: Logs) -> None:
    seq = logs.batches[200].input_seq
    core = asyncio.run(state_at(Events(logs.records), Decisions(logs.batches), seq))

    async def find(limit: int) -> Waypoint | None:
        return Waypoint(seq, core.snapshot(), "a test") if limit >= seq else None

    told, plain = tell(logs, 260, find=find), tell(logs, 260)

    assert (told.begun_seq, told.begun_from) == (seq, "a test")
    assert (told.digest_before, told.budgets, told.difference) == (plain.digest_before, plain.budgets, None)


def test_every_decision_of_a_history_can_be_told(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    met: set[str] = set()
    for batch in (decode_batch(stored.body) for stored in logs.batches):
        kinds = {str(decision["type"]) for decision in msgspec.to_builtins(batch.decisions)}
        if kinds <= met:
            continue
        met |= kinds
        told = tell(logs, batch.cycle)
        show(answer_of(told, 0), Format())
        said = capsys.readouterr().out
        assert f"DECIDED: {len(batch.decisions)}" in said
        for kind in kinds:
            assert f"{KINDS[kind]}: " in said
        placed = [decision for decision in batch.decisions if isinstance(decision, RunPlaced)]
        assert all(decision.workload in said for decision in placed)
        assert "derived again: the same" in said
    assert len(met) >= 8


def test_every_kind_of_decision_has_its_words() -> None:
    assert {struct.__struct_config__.tag for struct in AnyDecision.__args__} == KINDS.keys()
