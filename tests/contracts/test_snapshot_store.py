"""The contract of the port ``SnapshotStore``, and what the store on disk adds: damage is passed over, never used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from apportion.adapters.past.snapshots import DiskSnapshots


@pytest.fixture
def store(tmp_path: Path) -> DiskSnapshots:
    return DiskSnapshots(tmp_path / "snapshots", keep=3)


class TestSnapshotStore:
    """Newest at or before, exact bytes, bounded number."""

    def test_empty(self, store: DiskSnapshots) -> None:
        assert store.load() is None

    def test_newest_and_newest_before(self, store: DiskSnapshots) -> None:
        for seq in (10, 20, 30):
            store.save(seq, b"state %d" % seq)

        assert store.load() == (30, b"state 30")
        assert store.load(29) == (20, b"state 20")
        assert store.load(20) == (20, b"state 20")
        assert store.load(9) is None

    def test_only_the_last_ones_stay(self, store: DiskSnapshots) -> None:
        for seq in range(1, 8):
            store.save(seq, bytes(seq))

        assert store.seqs() == [5, 6, 7]

    def test_what_is_kept_beside_comes_back(self, store: DiskSnapshots) -> None:
        store.save(7, b"state", record_hash="abc", decision_seq=3)

        found = store.load_with_meta()

        assert found is not None
        assert (found[0].seq, found[0].record_hash, found[0].decision_seq, found[1]) == (7, "abc", 3, b"state")

    @pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign", "half header"])
    def test_damaged_snapshot_is_passed_over_and_reported(
        self, store: DiskSnapshots, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.save(1, b"old" * 100)
        store.save(2, b"new" * 100)
        path = max((tmp_path / "snapshots").iterdir())
        content = path.read_bytes()
        middle = len(content) - 50
        path.write_bytes(
            {
                "truncated": content[:-1],
                "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
                "empty": b"",
                "foreign": b"something else entirely",
                "half header": content[:20],
            }[damage]
        )

        with caplog.at_level(logging.ERROR):
            assert store.load() == (1, b"old" * 100)
        assert path.name in caplog.text

    def test_leftovers_of_an_interrupted_write_are_ignored(self, store: DiskSnapshots, tmp_path: Path) -> None:
        store.save(1, b"whole")
        (tmp_path / "snapshots" / ".snapshot-0000000000000002.bin.tmp").write_bytes(b"half")

        assert store.load() == (1, b"whole")
