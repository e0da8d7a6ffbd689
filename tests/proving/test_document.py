"""Documents of proofs: what they bind, how they are signed, and what a log must still hold for them to be about it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from functools import partial
from pathlib import Path

import msgspec
import pytest

from apportion.adapters.past.replaying import state_at
from apportion.adapters.proving import document as documents
from apportion.adapters.proving import signature
from apportion.adapters.proving.document import Document, DocumentInvalid
from apportion.adapters.proving.holding import differs
from apportion.adapters.proving.proof import prove
from apportion.adapters.proving.signature import CannotSign, SignatureInvalid
from apportion.adapters.proving.waypoints import Waypoint
from apportion.adapters.simulation.driver import Logs
from tests.projections.history import opened as story
from tests.projections.history import simulated
from tests.proving.keeping import Both, Decisions, Events, keep, opened
from tests.proving.test_proof import forged


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Return a rough history: rubbish, wrong clocks and records that came twice are in it."""
    return simulated(3, hours=6, nodes=2)


def document(path: Path, logs: Logs, from_seq: int, to_seq: int) -> Document:
    """Return the document of a proof of a range."""
    start = Waypoint(0, b"", "the first record")
    if from_seq:
        core = asyncio.run(state_at(Events(logs.records), Decisions(logs.batches), from_seq))
        start = Waypoint(from_seq, core.snapshot(), "a test")
    open_ = partial(opened, keep(path / "logs", logs))
    return documents.document_of(asyncio.run(prove(open_, start, (), to_seq, 1)))


def held(made: Document, records: list[object], batches: list[object], parts: int = 1) -> str:
    """Return in what a log is not the one of the document."""
    return asyncio.run(differs(made, Both(Events(records), Decisions(batches, parts))))  # type: ignore[arg-type]


def test_a_log_holds_what_was_proved_of_it_wherever_a_proof_begins_and_ends(logs: Logs, tmp_path: Path) -> None:
    ticks = [batch.input_seq for batch in logs.batches]
    ends = len(logs.records)
    ranges = [(0, ends), (0, 4), (ticks[9], ticks[50]), (ticks[9] + 3, ticks[50] + 2), (ticks[50] - 1, ticks[50])]
    for from_seq, to_seq in ranges:
        made = document(tmp_path, logs, from_seq, to_seq)

        assert made.result == "same"
        assert (made.first_seq, made.last_seq, made.records) == (from_seq + 1, to_seq, to_seq - from_seq)
        assert (made.trusted[:7] == "nothing") == (from_seq == 0)
        for parts in (1, 3):
            assert held(made, logs.records, logs.batches, parts) == "", (from_seq, to_seq, parts)


def test_a_cycle_in_progress_does_not_matter_once_it_is_decided(logs: Logs, tmp_path: Path) -> None:
    tick = logs.batches[40].input_seq
    made = document(tmp_path, Logs(logs.records[:tick], logs.batches[:40]), 0, tick)

    assert (made.undecided, made.cycles) == (1, 40)
    assert held(made, logs.records[:tick], logs.batches[:40]) == ""
    assert held(made, logs.records, logs.batches) == ""


def test_a_log_that_has_no_longer_the_range_is_told(logs: Logs, tmp_path: Path) -> None:
    made = document(tmp_path, logs, 300, 900)
    other = Logs(list(logs.records), list(logs.batches))
    forged(other, 60)
    flipped = list(logs.records)
    flipped[699] = flipped[699]._replace(body=flipped[699].body + b" ")
    later = list(logs.records)
    later[699] = later[699]._replace(subject=later[699].subject + "x")
    swapped = list(logs.batches)
    swapped[60], swapped[61] = swapped[61]._replace(seq=61), swapped[60]._replace(seq=62)
    foreign = [*story().logs.records, *logs.records[10:]]

    assert "ends at seq 899" in held(made, logs.records[:899], logs.batches)
    assert "the stored decisions" in held(made, logs.records, other.batches)
    assert "the records" in held(made, flipped, logs.batches)
    assert "the records" in held(made, later, logs.batches)
    assert held(made, logs.records, swapped)
    assert held(made, logs.records, logs.batches[:70])
    assert "this is log 'story'" in held(made, foreign, logs.batches)


def test_the_hash_of_a_range_binds_all_it_is_about(logs: Logs, tmp_path: Path) -> None:
    made = document(tmp_path, logs, 300, 900)
    known = documents.range_hash(made.log_id, made.start, made.end, made.decisions_sha256)

    assert known == made.range_sha256 == document(tmp_path, logs, 300, 900).range_sha256
    for name in ("seq", "time_ms", "chain", "digest", "open_records"):
        value = getattr(made.end, name)
        end = msgspec.structs.replace(made.end, **{name: value + 1 if isinstance(value, int) else value[::-1]})
        assert documents.range_hash(made.log_id, made.start, end, made.decisions_sha256) != known
    assert documents.range_hash("another", made.start, made.end, made.decisions_sha256) != known


def test_a_file_is_read_back_and_whatever_is_none_is_told(logs: Logs, tmp_path: Path) -> None:
    made, path = document(tmp_path, logs, 0, 400), tmp_path / "proof.json"
    content = documents.to_bytes(made)
    path.write_bytes(content)

    assert documents.read(path) == (made, content)
    for wrong, said in (
        (content.replace(b'"last_seq": 400', b'"last_seq": 401').replace(b'"seq": 400', b'"seq": 401'), "was changed"),
        (b"{}", "is not what"),
        (b"\xff", "is not what"),
        (content.replace(b'"format": 1', b'"format": 2'), "format 2"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DocumentInvalid, match=said):
            documents.read(path)
    with pytest.raises(DocumentInvalid, match="cannot be read"):
        documents.read(tmp_path / "nowhere")


def key(path: Path) -> Path:
    """Make a key without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "a test", "-f", str(path)], check=True, timeout=60)
    return path


def test_a_signature_holds_for_these_bytes_and_this_key_alone(tmp_path: Path) -> None:
    mine, other, path = key(tmp_path / "mine"), key(tmp_path / "other"), tmp_path / "proof.json"
    content = b'{"a": 1}\n'
    path.write_bytes(content)
    with pytest.raises(SignatureInvalid, match="is not there"):
        signature.check(path, content, None)
    made = signature.sign(path, mine)
    signature.sign(path, mine)  # once more takes its place
    by = signature.fingerprint(mine)

    assert by == signature.fingerprint(mine.with_suffix(".pub")) != signature.fingerprint(other)
    for given in (None, mine, mine.with_suffix(".pub")):
        assert signature.check(path, content, given) == by
    with pytest.raises(SignatureInvalid, match=f"signed by {re.escape(by)}, not by .*other.pub"):
        signature.check(path, content, other.with_suffix(".pub"))
    with pytest.raises(SignatureInvalid, match="was changed"):
        signature.check(path, b'{"a": 2}\n', None)
    made.write_text(made.read_text().replace("A", "B", 1))
    with pytest.raises(SignatureInvalid, match="was changed"):
        signature.check(path, content, mine)


def test_a_signature_for_something_else_does_not_count(tmp_path: Path) -> None:
    mine, path = key(tmp_path / "mine"), tmp_path / "proof.json"
    path.write_bytes(b"{}\n")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(mine), "-n", "file", str(path)], check=True, timeout=60)

    with pytest.raises(SignatureInvalid):
        signature.check(path, b"{}\n", mine)


def test_what_is_no_key_is_told(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("no key\n")

    with pytest.raises(CannotSign, match="no key that ssh-keygen reads"):
        signature.fingerprint(tmp_path / "none")
