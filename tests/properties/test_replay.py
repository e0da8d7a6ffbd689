"""Replay: from any snapshot, by trusting or verifying, one by one or in bulk, to the same bytes; and no changed byte passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.bench.worlds.cycles.world import World
from apportion.adapters.simulation.stated import Stated
from apportion.core import events as ev
from apportion.core.decisions import AnyDecision, CycleBatch, PendingExplained, decode_batch, encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record, encode, subject_of
from apportion.core.errors import ApportionError, Divergence, LogGap, SnapshotInvalid
from apportion.core.policy import cycle
from apportion.core.units import MS_PER_HOUR
from tests.core.chaos import Chaos, Seeded
from tests.core.story import START_MS, Story

quick = settings(derandomize=True, deadline=None, max_examples=25)
SEED, ACTIONS = 106, 130


@cache
def told() -> Story:
    """A story with everything in it, told once."""
    story = Story()
    chaos = Chaos(story, Seeded(SEED))
    story.watchers = (chaos,)
    chaos.begin()
    for _ in range(ACTIONS):
        chaos.act()
    chaos.in_pieces()
    chaos.breathing()
    chaos.planned()
    return story


@cache
def digests() -> list[str]:
    """The digest after each record of the story, cycles decided; index 0 is the beginning."""
    core, found = Core.new(), [Core.new().digest()]
    for record in told().records:
        if core.fold(record):
            core.verify(told().batches[record.seq])
        found.append(core.digest())
    return found


def forbidden(*_: Any) -> None:
    raise AssertionError("trusting decides nothing")


def replay(core: Core, how: Callable[[Core, bytes], None], to_seq: int) -> None:
    """Fold the story's records from where the core is up to ``to_seq``."""
    for record in told().records[core.seq : to_seq]:
        if core.fold(record):
            how(core, told().batches[record.seq])


def test_the_story_is_worth_replaying() -> None:
    """Every kind of decision that this core makes is in it."""
    kinds = {type(decision) for body in told().batches.values() for decision in decode_batch(body).decisions}

    assert kinds == set(get_args(AnyDecision))
    assert len(told().batches) > 40


@quick
@given(st.data())
def test_from_a_snapshot_anywhere_the_rest_is_byte_equal(data: st.DataObject) -> None:
    """Also from one taken between a tick and its cycle."""
    last = len(told().records)
    at = data.draw(st.integers(0, last))
    to = data.draw(st.integers(at, last))
    core = Core.new()
    replay(core, Core.trust, max(at - 1, 0))
    pending = at > 0 and core.fold(told().records[at - 1])

    restored = Core.from_snapshot(core.snapshot())

    assert restored.digest() == core.digest()
    assert restored.snapshot() == core.snapshot()
    assert restored.tick_pending == pending
    if pending:
        restored.verify(told().batches[at])
    replay(restored, Core.verify, to)
    assert restored.digest() == digests()[to]


def test_nothing_that_is_derived_changes_a_decision() -> None:
    """A core that has run on decides as one that was restored just before the cycle, for which all that is derived is new."""
    core = Core.new()
    for record in told().records:
        if core.fold(record):
            assert Core.from_snapshot(core.snapshot()).decide() == told().batches[record.seq]
            core.verify(told().batches[record.seq])


@pytest.mark.parametrize("rule", [{}, {"backfill": "conservative", "backfill_depth": 100}, {"moves": "carry_out"}])
def test_nor_in_a_cluster_that_is_kept_busy(rule: dict[str, Any]) -> None:
    world = World(24, 5, movable="moves" in rule)
    world.say(ev.PolicyActivated(pool=world.setting.pool, **rule))
    world.submit(400)
    for minute in range(24):
        world.end(minute % 5)
        world.submit(minute % 4)
        world.tick(MS_PER_HOUR // 8)
        fresh = Core.from_snapshot(world.core.snapshot())
        assert encode_batch(world.decide().batch) == encode_batch(fresh.decide_unhashed())


class Twice(World):
    """A world with a second core, which tells nobody why he waits."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.silent = Core.new()
        super().__init__(nodes, seed, movable=True)

    def fold(self, event: Stated) -> None:
        super().fold(event)
        self.silent.fold(Record(self.silent.seq + 1, event.at_ms, event.subject, event.body))

    def same(self) -> None:
        """Decide with both."""
        silent = self.silent.decide_unhashed(told=False)
        assert (but_for_reasons(self.decide().batch), self.core.last_batch.books) == (list(silent.decisions), silent.books)  # type: ignore[union-attr]  # it has just decided


def but_for_reasons(batch: CycleBatch) -> list[AnyDecision]:
    """Return what was decided beside why workloads wait."""
    return [decision for decision in batch.decisions if not isinstance(decision, PendingExplained)]


def test_whether_they_are_told_why_they_wait_changes_nothing_else() -> None:
    core = Core.new()
    for record in told().records:
        if core.fold(record):
            batch, stored = core.decide_unhashed(told=False), decode_batch(told().batches[record.seq])
            assert (list(batch.decisions), batch.books) == (but_for_reasons(stored), stored.books)


@pytest.mark.parametrize("rule", [{}, {"backfill": "conservative", "backfill_depth": 100}, {"moves": "carry_out"}])
def test_nor_does_it_where_hundreds_wait(rule: dict[str, Any]) -> None:
    world = Twice(24, 6)
    world.say(ev.PolicyActivated(pool=world.setting.pool, **rule))
    world.submit(1_000)
    for minute in range(24):
        world.end(minute % 7)
        world.submit(minute % 40)
        world.tick(MS_PER_HOUR // 8)
        world.same()


@pytest.mark.parametrize("check", [True, False])
def test_trusting_decides_nothing_and_reaches_the_same_state(check: bool) -> None:
    core, story, reached = Core.new(), told(), digests()[-1]  # the story decides: it is told before deciding is forbidden
    with mock.patch.object(cycle, "run_cycle", forbidden), mock.patch("apportion.core.engine.run_cycle", forbidden):
        replay(core, lambda c, body: c.trust(body, check=check), len(story.records))

    assert core.digest() == reached


def test_verifying_derives_every_byte_again() -> None:
    core = Core.new()
    replay(core, Core.verify, len(told().records))

    assert core.digest() == digests()[-1]
    assert core.cycle == len(told().batches)


@quick
@given(st.lists(st.integers(1, 60), min_size=1))
def test_reading_in_bulk_is_reading_one_by_one(sizes: list[int]) -> None:
    story, core, position = told(), Core.new(), 0
    while position < len(story.records):
        chunk = story.records[position : position + sizes[position % len(sizes)]]
        done = 0
        while done < len(chunk):
            done = core.fold_many(chunk, done)
            if core.tick_pending:
                core.trust(story.batches[core.seq])
        position += len(chunk)
        assert core.digest() == digests()[position]


def test_the_log_must_be_whole_and_in_order() -> None:
    first, second, third = told().records[:3]
    core = Core.new()
    core.fold(first)
    before = core.digest()

    for wrong in (first, third):
        with pytest.raises(LogGap, match="expected seq 2"):
            core.fold(wrong)
        with pytest.raises(LogGap, match="expected seq 2"):
            core.fold_many([wrong])
    assert core.digest() == before
    assert core.fold_many([second, third]) == 2
    with pytest.raises(LogGap, match="expected seq 4, got 3"):
        core.fold_many([third])


def test_a_pending_cycle_is_answered_before_anything_else() -> None:
    seq = next(iter(told().batches))
    core = Core.new()
    replay(core, Core.trust, seq - 1)

    with pytest.raises(ApportionError, match="no cycle is pending"):
        core.decide()
    assert core.fold(told().records[seq - 1])
    for read in (core.fold, lambda record: core.fold_many([record])):
        with pytest.raises(ApportionError, match="undecided"):
            read(told().records[seq])


def test_every_byte_read_is_in_the_digest_at_once_and_in_the_chain_from_the_next_tick() -> None:
    """Also a byte that changed nothing: the log is tamper-evident, not only its effect."""

    def read(watts: int) -> tuple[str, str]:
        story = Story()
        story.open()
        story.tell(ev.PoolDefined(pool="p"))
        story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8))
        story.tick()
        story.tell(ev.NodeHeartbeat(node="n1", beat=1, watts=watts))
        return story.core.digest(), story.tick().chain

    first, second = read(1), read(2)
    assert first == read(1)
    assert first[0] != second[0]
    assert first[1] != second[1]


# -- changed batches ---------------------------------------------------------------------------------------------------


def mutations(batch: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (what, changed copy) for each class of field: every envelope field, and each field of each kind of decision."""
    for name in ("core", "cycle", "seq", "time_ms"):
        yield name, {**batch, name: batch[name] + 1}
    for name in ("chain", "digest"):
        yield name, {**batch, name: batch[name][:-1] + ("0" if batch[name][-1] != "0" else "1")}
    for index, decision in enumerate(batch["decisions"]):
        for name, value in decision.items():
            if name != "type" and (changed := other(value)) != value:
                decisions = list(batch["decisions"])
                decisions[index] = {**decision, name: changed}
                yield f"{decision['type']}.{name}", {**batch, "decisions": decisions}
        without = batch["decisions"][:index] + batch["decisions"][index + 1 :]
        yield f"without {decision['type']}", {**batch, "decisions": without}
    if len(batch["decisions"]) > 1 and batch["decisions"][0] != batch["decisions"][-1]:
        yield "order", {**batch, "decisions": batch["decisions"][::-1]}
    for name, value in batch["books"][0].items():
        yield f"books.{name}", {**batch, "books": [{**batch["books"][0], name: other(value)}, *batch["books"][1:]]}


def other(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value[:-1], other(value[-1])] if value else value
    if isinstance(value, dict):
        return {key: other(entry) for key, entry in value.items()}
    return value


@cache
def changed() -> dict[str, tuple[int, bytes]]:
    """One changed batch per class of field: what -> (seq of its tick, bytes)."""
    found: dict[str, tuple[int, bytes]] = {}
    for seq, body in told().batches.items():
        for what, batch in mutations(msgspec.json.decode(body)):
            found.setdefault(what, (seq, encode(batch)))
    return found


@cache
def snapshots() -> dict[int, bytes]:
    """A snapshot right after each tick was folded, its cycle pending."""
    wanted = {seq for seq, _ in changed().values()}
    core, found = Core.new(), {}
    for record in told().records:
        if core.fold(record):
            if record.seq in wanted:
                found[record.seq] = core.snapshot()
            core.trust(told().batches[record.seq])
    return found


def test_verify_stops_at_the_changed_cycle_and_names_both_sides() -> None:
    assert len(changed()) > 90
    for what, (seq, body) in changed().items():
        core = Core.from_snapshot(snapshots()[seq])

        with pytest.raises(Divergence) as caught:
            core.verify(body)

        assert caught.value.seq == seq, what
        assert caught.value.stored != caught.value.derived, what
        assert caught.value.stored in str(caught.value)
        assert caught.value.derived in str(caught.value)


def test_trust_takes_no_batch_that_does_not_lead_where_it_says() -> None:
    for what, (seq, body) in changed().items():
        core = Core.from_snapshot(snapshots()[seq])

        try:
            core.trust(body)
        except ApportionError:
            continue
        pytest.fail(f"a batch with another {what} was trusted")


def test_a_batch_of_other_bytes_with_equal_meaning_is_not_the_stored_one() -> None:
    seq, body = next(iter(told().batches.items()))
    before = Core.new()
    replay(before, Core.trust, seq - 1)
    before.fold(told().records[seq - 1])
    spaced = body.replace(b'{"core":', b'{ "core":', 1)
    unknown = body[:-1] + b',"colour":"blue"}'
    assert len({body, spaced, unknown}) == 3

    for stored in (spaced, unknown):
        with pytest.raises(Divergence, match="bytes"):
            Core.from_snapshot(before.snapshot()).verify(stored)


@quick
@given(st.data())
def test_a_changed_snapshot_is_not_loaded(data: st.DataObject) -> None:
    core = Core.new()
    replay(core, Core.trust, 60)
    snapshot = core.snapshot()
    at = data.draw(st.integers(0, len(snapshot) - 1))
    flipped = snapshot[:at] + bytes([snapshot[at] ^ data.draw(st.integers(1, 255))]) + snapshot[at + 1 :]

    for damaged in (flipped, snapshot[:at], snapshot + b"\0"):
        with pytest.raises(SnapshotInvalid):
            Core.from_snapshot(damaged)


def test_an_empty_log_has_nothing_due_and_nothing_to_decide() -> None:
    core = Core.new()

    assert (core.seq, core.cycle, core.due_ms(), core.dirty, core.tick_pending) == (0, 0, None, False, False)
    assert Core.from_snapshot(core.snapshot()).digest() == core.digest()


def test_the_time_source_is_the_one_the_log_was_opened_with() -> None:
    stated, stored = Story(), Story()
    stated.open("stated")
    stored.send(*_opening("stored"), stored_ms=77)

    assert stated.core.time_ms == START_MS
    assert stored.core.time_ms == 77
    body = ev.encode_event(ev.PoolDefined(pool="p"), event_id="e", at_ms=START_MS)
    record = Record(2, 99, subject_of("ops", "pool.defined"), body)
    stated.core.fold(record)
    stored.core.fold(record)
    assert (stated.core.time_ms, stored.core.time_ms) == (START_MS, 99)


def _opening(source: Any) -> tuple[str, bytes]:
    event = ev.LogOpened(log_id="story", time_source=source, operators=("ops",))
    return subject_of("ops", "log.opened"), ev.encode_event(event, event_id="e", at_ms=START_MS)
