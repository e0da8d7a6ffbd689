"""A stretch folded by the kernel, batches and all, comes to what record by record and batch by batch come to, to the last byte."""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.simulation.cluster import Layout, TimeSource
from apportion.adapters.simulation.driver import Logs, Simulation
from apportion.adapters.simulation.faults import ROUGH, Faults
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.decisions import RunClosed, decode_batch
from apportion.core.engine import Core
from apportion.core.envelope import MAX_BODY_BYTES, Record, StoredBatch
from apportion.core.fold.columns import Columns, room_for
from apportion.core.fold.stretches import Batches
from apportion.core.kernels import effects, reports, spelled, stored, stretch
from apportion.core.state import schema
from apportion.core.state.state import State
from tests.core.chaos import Chaos, Seeded
from tests.core.story import Story
from tests.projections.history import HOUR_MS, MINUTE_MS, START_MS, TROUBLED, simulated

pytestmark = [
    pytest.mark.skipif(not reports.COMPILED, reason="Numba is told not to compile"),
    pytest.mark.timeout(900),  # whoever comes first compiles the kernel: 40 s of a processor that may have others to serve
]

few = settings(derandomize=True, max_examples=25, deadline=None)
many = settings(derandomize=True, max_examples=400, deadline=None)


class History(NamedTuple):
    """What is played."""

    seed: int
    time_source: TimeSource = "stated"
    rough: bool = False
    moves: Any = None
    nodes: int = 2


HISTORIES = (History(1, rough=True), History(2, "stored", rough=True), History(3, nodes=4), History(4, "stored", moves="carry_out"))


@functools.cache
def played(history: History) -> Logs:
    """Return the logs of a few troubled nodes around a midnight."""
    start_ms, hours = START_MS + 20 * HOUR_MS, 9
    layout = Layout(nodes=history.nodes, moves=history.moves)
    options = WorldOptions(
        seed=history.seed, start_ms=start_ms, length_ms=hours * HOUR_MS, layout=layout, rates=TROUBLED,
        time_source=history.time_source,
    )  # fmt: skip
    jobs = generate(history.seed, Shape(days=1, gpus=8 * history.nodes, demand_milli=6_000, largest=16))
    simulation = Simulation(World(jobs, options), arrive=Faults(history.seed, ROUGH) if history.rough else None)
    return simulation.run(start_ms + hours * HOUR_MS, cycle_ms=5 * MINUTE_MS)


def columns_of(records: Sequence[Record]) -> Columns:
    """Return records as columns, heartbeats as the bytes they are."""
    subjects = {record.subject: number for number, record in enumerate({record.subject: record for record in records}.values())}
    told = room_for(len(records))
    told.length[:] = [len(record.body) for record in records]
    told.start[:] = np.cumsum(told.length) - told.length
    told.form[:] = np.where(told.length <= MAX_BODY_BYTES, 0, reports.HIDDEN)
    told.who[:], told.stored_ms[:] = zip(*((subjects[record.subject], record.stored_ms) for record in records), strict=True)
    data = np.frombuffer(b"".join(record.body for record in records) + b"\0", dtype=np.uint8)
    return Columns(records[0].seq, len(records), list(subjects), [""] * len(subjects), told, data, lambda place: records[place])


def everything(state: State) -> dict[str, Any]:
    """Return all of a state but its chain, what is derived too, as values that compare."""
    found: dict[str, Any] = {"counters": state.counters, "members": state.members, "refused": state.refused}
    for name, table in state.tables().items():
        found[name] = (table.used, table.free, table.keys, table.row_of, table.block[:, : table.used].tolist())
    queue = state.queue[: state.queued].tolist()
    found["in_queue"] = np.flatnonzero(state.in_queue).tolist()
    found["queue"] = (queue, state.asks[: state.queued].tolist(), [state.waits[row].tolist() for row in queue])
    found["waiting"] = state.waiting[: state.budget.used].tolist()
    return found | {"untold": sorted(state.untold), "unsettled": sorted(state.unsettled)}


def stretched(core: Core, records: Sequence[Record], batches: Sequence[StoredBatch], most: int | None = None) -> None:
    """Fold by the kernel what it takes, the rest as it is left."""
    answers = Batches(batches, len(batches) if most is None else most)
    columns, position = columns_of(records), 0
    while position < columns.count:
        position = core.trust_columns(columns, position, answers)
        batch = answers.next()
        if core.tick_pending and batch is not None:
            core.trust(batch.body, check=False, done=answers.done)
            answers.took()


def one_by_one(core: Core, records: Sequence[Record], batches: Sequence[StoredBatch]) -> None:
    """Fold record by record and trust batch by batch."""
    answers = {batch.input_seq: batch.body for batch in batches}
    for record in records:
        if core.fold(record) and record.seq in answers:
            core.trust(answers[record.seq], check=False)


def before(logs: Logs, seq: int) -> bytes:
    """Return a snapshot of the state before a record, its tick answered."""
    core = Core.new()
    one_by_one(core, logs.records[: seq - 1], logs.batches)
    return core.snapshot()


KINDS = ("workload.submitted", "run.started", "run.finished", "clock.tick")
POLICIES: tuple[Any, ...] = ("fair", "horizon", "fifo", "priority", "drf", "fair_tree")


@few
@given(st.data())
def test_any_stretch_comes_to_what_one_by_one_comes_to(data: st.DataObject) -> None:
    logs = played(data.draw(st.sampled_from(HISTORIES)))
    first = data.draw(st.integers(1, len(logs.records) - 1))
    last = data.draw(st.integers(first, len(logs.records)))
    snapshot = before(logs, first)
    records = logs.records[first - 1 : last]
    batches = [batch for batch in logs.batches if first <= batch.input_seq <= last]
    most = data.draw(st.integers(0, len(batches)))
    expected, reached = Core.from_snapshot(snapshot), Core.from_snapshot(snapshot)
    one_by_one(expected, records, batches)

    stretched(reached, records, batches, most)

    assert everything(reached.state) == everything(expected.state)
    if batches and batches[-1].input_seq == last:
        assert reached.snapshot() == expected.snapshot()


@functools.cache
def chaotic(seed: int) -> Logs:
    """Return the logs of people, nodes and agents that do anything."""
    dice = Seeded(seed)
    story = Story()
    chaos = Chaos(story, dice, POLICIES[: seed % (len(POLICIES) + 1)])
    story.watchers = (chaos,)
    chaos.begin()
    for _ in range(500):
        chaos.act()
    batches = [StoredBatch(number, seq, body) for number, (seq, body) in enumerate(story.batches.items(), 1)]
    return Logs(records=story.records, batches=batches)


@pytest.mark.parametrize("seed", range(12))
def test_what_anybody_does_in_any_order_comes_to_the_same(seed: int) -> None:
    logs, dice = chaotic(seed), random.Random(seed)
    expected, reached, position = Core.new(), Core.new(), 0
    while position < len(logs.records):
        records = logs.records[position : position + dice.choice([1, 7, 60, 400])]
        position += len(records)
        batches = [batch for batch in logs.batches if records[0].seq <= batch.input_seq <= records[-1].seq]
        one_by_one(expected, records, batches)
        stretched(reached, records, batches, dice.choice([len(batches)] * 4 + [len(batches) // 2, 0]))
        assert everything(reached.state) == everything(expected.state)
    assert expected.cycle > 50


@pytest.mark.parametrize("history", HISTORIES)
def test_the_kernel_takes_every_common_decision(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch that left them all to the slow way would be equal, too."""
    logs, stops = played(history), list[int]()
    fold = stretch.fold
    monkeypatch.setattr(stretch, "fold", lambda n, *rest: (fold(n, *rest), stops.append(int(n[effects.WHY])))[0])
    core = Core.new()

    stretched(core, logs.records, logs.batches)

    assert core.cycle == len(logs.batches)
    rare = sum(not all(common(decision) for decision in decode_batch(batch.body).decisions) for batch in logs.batches)
    assert rare < len(logs.batches) // 3
    assert stops.count(stretch.BATCH) <= rare


def common(decision: Any) -> bool:
    """Tell whether the kernel knows a decision."""
    told = decision.__struct_config__.tag in stored.DECISIONS
    if isinstance(decision, RunClosed):
        told = not (decision.refunded_gpu_us or decision.unfunded_refunded_gpu_us or decision.blamed or not decision.event_seq)
    return bool(told)


def test_a_state_that_is_not_for_the_kernel_goes_the_slow_way() -> None:
    logs = simulated(5, hours=2)  # with a service
    expected, reached = Core.new(), Core.new()
    one_by_one(expected, logs.records, logs.batches)
    stretched(reached, logs.records, logs.batches)

    assert len(expected.state.service) == 1
    assert everything(reached.state) == everything(expected.state)


# -- changed bytes -----------------------------------------------------------------------------------------------------


def changed(rng: random.Random, body: bytes) -> bytes:
    """Return a body with something changed, doubled, left out, or put in place of something else."""
    at, width = rng.randrange(len(body)), rng.choice([1, 1, 1, 2, 9])
    pieces = (*(bytes([piece]) for piece in b'09"\\,]} -\x1f\x7f'), b"", b"\xc3\xa9", b"1e3", body[at : at + width] * 2)
    return body[:at] + rng.choice(pieces) + body[at + width :]


@functools.cache
def wanted(kind: str) -> list[tuple[bytes, Record]]:
    """Return some records of a kind, each with a snapshot of the state before it."""
    logs = played(HISTORIES[2])
    found = [record for record in logs.records if record.subject.endswith(kind)]
    return [(before(logs, record.seq), record) for record in found[5 :: max(1, len(found) // 4)][:3]]


@many
@given(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 10**9))
def test_a_changed_record_is_read_as_the_slow_way_reads_it(kind: str, which: int, seed: int) -> None:
    snapshot, record = wanted(kind)[which]
    body = changed(random.Random(seed), record.body)
    expected, reached = Core.from_snapshot(snapshot), Core.from_snapshot(snapshot)
    expected.fold(record._replace(body=body))

    stretched(reached, [record._replace(body=body)], [])

    assert everything(reached.state) == everything(expected.state)


@functools.cache
def decisive() -> list[tuple[bytes, Record, StoredBatch]]:
    """Return the fullest batches of a history, each with its tick and a snapshot of the state before it."""
    logs = played(HISTORIES[2])
    fullest = sorted(logs.batches, key=lambda batch: (-len(batch.body), batch.seq))[:6]
    return [(before(logs, batch.input_seq), logs.records[batch.input_seq - 1], batch) for batch in fullest]


@many
@given(st.integers(0, 5), st.integers(0, 10**9))
def test_a_changed_batch_is_folded_as_the_slow_way_folds_it_or_refused(which: int, seed: int) -> None:
    """But for what it says where nothing depends on it: of that the slow way may say that it cannot be decoded."""
    snapshot, tick, batch = decisive()[which]
    compare_batch(snapshot, tick, batch._replace(body=changed(random.Random(seed), batch.body)))


def compare_batch(snapshot: bytes, tick: Record, other: StoredBatch) -> None:
    """Check that both ways come to the same with a batch, or both refuse it, but for what it says where nothing depends on it."""
    expected, reached = Core.from_snapshot(snapshot), Core.from_snapshot(snapshot)
    refused: Exception | None = None
    try:
        expected.fold_columns(columns_of([tick]), 0)  # so that its chain, too, is taken from the batch
        expected.trust(other.body, check=False)
    except Exception as error:  # whatever its bytes break
        refused = error

    try:
        stretched(reached, [tick], [other])
    except Exception:
        assert refused is not None
        return
    if refused is None:
        assert everything(reached.state) == everything(expected.state)
    else:
        assert isinstance(refused, msgspec.MsgspecError | UnicodeDecodeError), refused


# -- other spellings ---------------------------------------------------------------------------------------------------


ODD: tuple[Any, ...] = (
    0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**18, 1.0, None, True, "", "\u00e9", "a\0b", "x" * 1_100, [], {}, "plan",
)  # fmt: skip


def objects(value: Any) -> list[dict[str, Any]]:
    """Return every object in a value, itself too."""
    found = [value] if isinstance(value, dict) else []
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        found += objects(inner)
    return found


def respelled(rng: random.Random, body: bytes, odd: bool) -> bytes:
    """Return the same in another order, with escapes, spaces, fields that nobody knows; if ``odd``, something is not the same."""
    whole = json.loads(body)
    one = rng.choice([each for each in objects(whole) if each])
    fields, name = list(one.items()), rng.choice(list(one))
    how = rng.randrange(3)
    if how == 0:
        rng.shuffle(fields)
    elif how == 1:
        fields.insert(rng.randrange(len(fields) + 1), ("of_days_to_come", rng.choice(ODD)))
    one.clear()
    one.update(fields)
    if odd:
        change = rng.randrange(3)
        if change == 0:
            del one[name]
        else:
            one[name] = rng.choice(ODD) if change == 1 or not isinstance(one[name], str) else one[name] + rng.choice("\u00e9 x\n")
    text = json.dumps(whole, ensure_ascii=rng.random() < 0.5, separators=rng.choice(((",", ":"), (", ", ":"), (",", ":"))))
    if how == 2:
        text = re.sub('(?<=")[a-z]', lambda letter: rf"\u{ord(letter[0]):04x}", text)
    ends = rng.choice((("", ""), ("", ""), ("", "\n"), (" ", ""), ("\ufeff", ""), ("", "}"), ("", "\0")))
    return ends[0].encode() + text.encode("utf-8", "surrogatepass") + ends[1].encode()


@many
@given(st.sampled_from(KINDS), st.integers(0, 2), st.booleans(), st.integers(0, 10**9))
def test_a_record_in_any_spelling_is_read_as_the_slow_way_reads_it(kind: str, which: int, odd: bool, seed: int) -> None:
    snapshot, record = wanted(kind)[which]
    body = respelled(random.Random(seed), record.body, odd)
    expected, reached = Core.from_snapshot(snapshot), Core.from_snapshot(snapshot)
    expected.fold(record._replace(body=body))

    stretched(reached, [record._replace(body=body)], [])

    assert everything(reached.state) == everything(expected.state)


@many
@given(st.integers(0, 5), st.booleans(), st.integers(0, 10**9))
def test_a_batch_in_any_spelling_is_folded_as_the_slow_way_folds_it_or_refused(which: int, odd: bool, seed: int) -> None:
    snapshot, tick, batch = decisive()[which]
    compare_batch(snapshot, tick, batch._replace(body=respelled(random.Random(seed), batch.body, odd)))


# -- reading -----------------------------------------------------------------------------------------------------------


scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text("ab {}[],:", max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k{]", max_size=2), inner, max_size=3)
)


@many
@given(values)
def test_the_end_of_an_object_is_where_it_is(value: Any) -> None:
    body = msgspec.json.encode({"a": value})
    data = np.frombuffer(bytearray(body + b',"more":1}'), dtype=np.uint8)

    assert spelled.object_end(data, 1, len(data)) == len(body)


@many
@given(st.integers(-(10**20), 10**20), st.sampled_from((b"", b",", b"}")))
def test_integers_are_read_as_they_are_written(number: int, then: bytes) -> None:
    body = b"%d" % number
    data = np.frombuffer(bytearray(body + then), dtype=np.uint8)

    fits = abs(number) < 10**spelled.MOST_DIGITS
    assert spelled.integer(data, 0, len(data)) == ((number, len(body)) if fits else (0, -1))


@pytest.mark.parametrize("body", [b"", b"-", b"01", b"-0", b"x1", b"-01"])
def test_what_is_no_integer_is_none(body: bytes) -> None:
    assert spelled.integer(np.frombuffer(bytearray(body + b","), dtype=np.uint8), 0, len(body) + 1)[1] == -1


def test_the_kernel_has_the_codes_of_the_schema() -> None:
    for name in ("NEW", "PENDING", "HELD", "RUNNING", "OVER", "PLACED", "STARTED", "STOPPING", "ENDED", "PAYER_BUDGET",
                 "PAYER_UNFUNDED", "HOLD_NONE", "HOLD_FUNDED", "HOLD_UNFUNDED"):  # fmt: skip
        assert getattr(effects, name) == getattr(schema, name), name
