"""A proof in stretches says what a proof in one piece says, and whatever is wrong is found where it is in the log."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apportion.adapters.archiving import writing
from apportion.adapters.bench.verify import opened as opened_archive
from apportion.adapters.past import replaying
from apportion.adapters.past.snapshots import DiskSnapshots, record_hash
from apportion.adapters.proving import proof as proofs
from apportion.adapters.proving.proof import Proof, WorkerDied, prove
from apportion.adapters.proving.stretch import Point, join
from apportion.adapters.proving.waypoints import Cut, Directory, Foreign, Waypoint, kept, newest, plan
from apportion.adapters.simulation.driver import Logs
from apportion.core.decisions import RunPlaced, decode_batch, encode_batch
from apportion.core.engine import Core
from tests.projections.history import simulated
from tests.proving.keeping import Decisions, Events, fatal, keep, opened

BEGINNING = Waypoint(0, b"", "the first record")
LEAST = 200


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Return a history of eight hours; nobody may change it."""
    return simulated(3, hours=8, nodes=3, rough=False)


def copy(logs: Logs) -> Logs:
    """Return logs that may be changed."""
    return Logs(list(logs.records), list(logs.batches))


def threads(workers: int, board: Any) -> Executor:
    """Return workers that need no start of a process: what is put together is the same."""
    return ThreadPoolExecutor(workers, initializer=join, initargs=(board,))


def proved(
    path: Path, logs: Logs, workers: int = 3, start: Waypoint = BEGINNING, waypoints: tuple[Waypoint, ...] = (), **more: Any
) -> Proof:
    """Prove kept logs to their end in stretches."""
    open_ = more.pop("open_", None) or partial(opened, keep(path / "logs", logs))
    more = {"least_records": LEAST, "pool": threads, **more}
    return asyncio.run(prove(open_, start, waypoints, len(logs.records), workers, **more))


def state(logs: Logs, seq: int) -> Waypoint:
    """Return the state after a record, as somebody would keep it."""
    core = asyncio.run(replaying.state_at(Events(logs.records), Decisions(logs.batches), seq))
    return Waypoint(seq, core.snapshot(), "a test")


def forged(logs: Logs, position: int) -> int:
    """Change the first start at or after a batch; return the tick it answers."""
    for place in range(position, len(logs.batches)):
        batch = decode_batch(logs.batches[place].body)
        for number, decision in enumerate(batch.decisions):
            if isinstance(decision, RunPlaced):
                other = msgspec.structs.replace(decision, protected_until_ms=decision.protected_until_ms + 1)
                decisions = (*batch.decisions[:number], other, *batch.decisions[number + 1 :])
                body = encode_batch(msgspec.structs.replace(batch, decisions=decisions))
                logs.batches[place] = logs.batches[place]._replace(body=body)
                return batch.seq
    raise AssertionError(f"nothing starts after batch {position}")


def marks(proof: Proof) -> tuple[Point, Point, int, str]:
    """Return what two proofs of one range must agree in."""
    return proof.start, proof.end, proof.cycles, proof.decisions_sha256


def test_stretches_say_what_one_piece_says(logs: Logs, tmp_path: Path) -> None:
    one = proved(tmp_path, logs, workers=1)
    assert one.ok
    assert (one.stretches, one.cycles, one.end.seq) == (1, len(logs.batches), len(logs.records))

    for workers, places in ((2, ()), (3, (700,)), (5, (300, 900, 1_500, 2_100))):
        many = proved(tmp_path, logs, workers, waypoints=tuple(state(logs, seq) for seq in places))

        assert many.stretches > 1
        assert marks(many) == marks(one)


def test_a_proof_that_starts_later_ends_in_the_same_state(logs: Logs, tmp_path: Path) -> None:
    whole = proved(tmp_path, logs, workers=1)
    later = proved(tmp_path, logs, start=state(logs, 1_001))

    assert later.ok
    assert (later.start.seq, later.end) == (1_001, whole.end)
    assert later.cycles == whole.cycles - later.start.cycle


def test_processes_prove_it_side_by_side(logs: Logs, tmp_path: Path) -> None:
    seen: list[int] = []

    whole = proved(
        tmp_path, logs, workers=2, pool=proofs.processes, least_records=1_000, progress=lambda at: seen.append(at.events)
    )

    assert whole.ok
    assert (whole.workers, marks(whole)) == (2, marks(proved(tmp_path, logs, workers=1)))
    assert seen
    assert seen == sorted(seen)


def test_an_archive_is_proved_with_states_made_of_its_columns(logs: Logs, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    asyncio.run(writing.write(Events(logs.records), Decisions(logs.batches), place, with_open_day=True))

    whole = proved(tmp_path, logs, workers=4, open_=partial(opened_archive, place))

    assert whole.stretches > 4
    assert marks(whole) == marks(proved(tmp_path, logs, workers=1))


def test_a_worker_that_dies_is_an_error_and_no_wait(logs: Logs, tmp_path: Path) -> None:
    path = keep(tmp_path / "logs", logs)

    with pytest.raises(WorkerDied, match="nothing is proved"):
        proved(tmp_path, logs, workers=2, pool=proofs.processes, open_=partial(fatal, path))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_first_difference_is_the_earliest_of_the_log(logs: Logs, tmp_path: Path, workers: int) -> None:
    changed = copy(logs)
    forged(changed, 150)
    first = forged(changed, 20)

    wrong = proved(tmp_path, changed, workers)

    found = wrong.first_difference
    assert found is not None
    assert (found["what"], found["seq"], found["fields"]) == ("decision", first, ["protected_until_ms"])
    assert found["stored"]["protected_until_ms"] == found["derived"]["protected_until_ms"] + 1
    assert wrong.cycles == found["cycle"] - 1


@pytest.mark.parametrize("place", [5, 130])
def test_swapped_batches_are_found_at_the_first_of_them(logs: Logs, tmp_path: Path, place: int) -> None:
    changed = copy(logs)
    one, other = changed.batches[place], changed.batches[place + 1]
    changed.batches[place], changed.batches[place + 1] = other._replace(seq=one.seq), one._replace(seq=other.seq)

    found = proved(tmp_path, changed).first_difference

    assert found is not None
    assert (found["what"], found["seq"]) == ("order", one.input_seq)


@pytest.mark.parametrize("seq", [40, 1_234])
def test_a_flipped_byte_of_a_record_breaks_the_chain_at_the_next_cycle(logs: Logs, tmp_path: Path, seq: int) -> None:
    changed = copy(logs)
    record = changed.records[seq - 1]
    changed.records[seq - 1] = record._replace(body=record.body[:-1] + bytes([record.body[-1] ^ 1]))

    found = proved(tmp_path, changed).first_difference

    assert found is not None
    assert found["seq"] == next(batch.input_seq for batch in logs.batches if batch.input_seq >= seq)


def test_a_missing_record_is_a_gap(logs: Logs, tmp_path: Path) -> None:
    changed = copy(logs)
    del changed.records[1_499]

    found = proved(tmp_path, changed).first_difference

    assert found is not None
    assert found["what"] == "log"
    assert "expected seq 1500" in found["detail"]


def test_a_state_of_another_history_is_found_by_the_stretch_before_it(logs: Logs, tmp_path: Path) -> None:
    other = copy(logs)
    seq = forged(other, 100) + 1
    core = asyncio.run(_unchecked(other, seq))
    wrong = Waypoint(seq, core.snapshot(), "a snapshot of somebody")

    found = proved(tmp_path, logs, waypoints=(wrong,)).first_difference

    assert found is not None
    assert (found["what"], found["seq"]) == ("snapshot", seq)
    assert found["stored"] == core.digest() != found["derived"]
    assert "a snapshot of somebody" in found["detail"]


async def _unchecked(logs: Logs, seq: int) -> Core:
    core = Core.new()
    await replaying.trust(core, Events(logs.records), Decisions(logs.batches), seq)
    return core


def test_only_snapshots_of_this_log_and_program_are_used(logs: Logs, tmp_path: Path) -> None:
    events, store = Events(logs.records), DiskSnapshots(tmp_path, keep=9)
    for seq in (500, 900, 1_300):
        record = logs.records[seq - 1]
        store.save(seq, state(logs, seq).data, record_hash=record_hash(record.subject, record.body))
    damaged = tmp_path / f"snapshot-{900:016d}.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    directories = [Directory(tmp_path / "none", "nobody"), Directory(tmp_path, "a test")]

    found = asyncio.run(kept(events, directories, 0, 2_000))
    nearest = asyncio.run(newest(events, directories, 1_299))

    assert [waypoint.seq for waypoint in found] == [500, 1_300]
    assert nearest is not None
    assert (nearest.seq, nearest.source) == (500, "snapshot of a test")

    store.save(1_000, state(logs, 1_000).data, record_hash="of another record")
    with pytest.raises(Foreign, match="made from another log"):
        asyncio.run(kept(events, directories, 0, 2_000))


def test_cuts_cover_the_range_and_use_what_is_kept() -> None:
    for places in ((), (1_000,), (10, 5_000, 5_001, 9_990), tuple(range(500, 10_000, 500))):
        waypoints = [Waypoint(seq, b"x", "kept") for seq in places]
        for workers in (2, 3, 16):
            cuts = plan(BEGINNING, waypoints, 10_000, workers, 100)

            assert (cuts[0].from_seq, cuts[0].waypoint, cuts[-1].to_seq) == (0, BEGINNING, 10_000)
            assert [cut.from_seq for cut in cuts[1:]] == [cut.to_seq for cut in cuts[:-1]]
            assert all(cut.to_seq - cut.from_seq >= 50 for cut in cuts)
            assert all(_begins_with_its_state(cut) for cut in cuts)


def _begins_with_its_state(cut: Cut) -> bool:
    return cut.waypoint is None or cut.waypoint.seq == cut.from_seq
