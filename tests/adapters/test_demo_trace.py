"""Reading the public trace: each form of the path gives the same jobs, and nothing odd is read silently."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from apportion.adapters.demo.trace import ARCHIVE, TraceError, read_trace
from apportion.adapters.simulation.job import Job

HEADER = "job_id,submission_time,duration,num_gpu\n"
DAY = 86_400


def write(folder: Path, name: str, rows: list[tuple[str, int, int, int]]) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(HEADER + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    unpacked = tmp_path / "unpacked"
    write(unpacked, "cluster02.csv", [("b", 14 * DAY + 5, 700, 8), ("late", 21 * DAY, 700, 1)])
    rows = [("early", 14 * DAY - 1, 700, 1), ("a", 14 * DAY + 5, 601, 64), ("c", 15 * DAY, 9, 1)]
    write(unpacked, "cluster01.csv", rows)
    (unpacked / "LICENSE").write_text("not a trace")
    return unpacked


EXPECTED = [
    Job("a", 5_000, 601_000, 64, "cluster01"),
    Job("b", 5_000, 700_000, 8, "cluster02"),
    Job("c", DAY * 1_000, 9_000, 1, "cluster01"),
]


def test_every_form_of_the_path_gives_the_same_jobs(folder: Path, tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.mkdir()
    with tarfile.open(published / ARCHIVE, "w:gz") as archive:
        archive.add(folder, arcname=".")
    assert read_trace(folder) == EXPECTED
    assert read_trace(published) == EXPECTED
    assert read_trace(published / ARCHIVE) == EXPECTED
    assert read_trace(folder / "cluster02.csv") == EXPECTED[1:2]


def test_the_slice_is_half_open_and_counts_from_its_first_day(folder: Path) -> None:
    assert [job.job_id for job in read_trace(folder, 13, 1)] == ["early"]
    assert read_trace(folder, 15, 1) == [Job("c", 0, 9_000, 1, "cluster01")]
    assert [job.job_id for job in read_trace(folder, 0, 60)] == ["early", "a", "b", "c", "late"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "first line"),
        ("job_id,submission_time,num_iteration\n", "first line"),
        (HEADER + "a,1,2\n", "line 2: 3 fields"),
        (HEADER + "a,1,2,1\nb,x,2,1\n", "line 3"),
        (HEADER + "a,-1,2,1\n", "submission_time is -1"),
        (HEADER + "a,1,0,1\n", "duration is 0"),
        (HEADER + "a,1,2,0\n", "num_gpu is 0"),
        (HEADER + "a,1,2,9223372036854775808\n", "num_gpu is 9223372036854775808"),
        (HEADER + "a,1.5,2,1\n", "whole numbers"),
        (HEADER + ",1,2,1\n", "job_id"),
    ],
)
def test_an_odd_row_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "cluster03.csv").write_text(text)
    with pytest.raises(TraceError, match=r"cluster03\.csv") as caught:
        read_trace(tmp_path, 0, 60)
    assert said in str(caught.value)


def test_what_is_not_the_trace_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(TraceError, match="no such file or folder"):
        read_trace(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TraceError, match=r"neither raw-traces\.tar\.gz nor"):
        read_trace(empty)
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"\x1f\x8b\x08 cut")
    with pytest.raises(TraceError, match="not a readable archive"):
        read_trace(broken)
    other = io.BytesIO(b"x")
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        info = tarfile.TarInfo("readme")
        info.size = 1
        archive.addfile(info, other)
    with pytest.raises(TraceError, match=r"no cluster\*\.csv"):
        read_trace(tmp_path / "other.tar")
    with pytest.raises(TraceError, match="name is the program"):
        read_trace(write(tmp_path, "jobs.csv", []))
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "cluster01.csv").write_bytes(HEADER.encode() + b"\xff\xfe\x00\n")
    with pytest.raises(TraceError, match=r"cluster01\.csv: not a text"):
        read_trace(tmp_path / "binary", 0, 60)
    with pytest.raises(TraceError, match="no job was submitted"):
        read_trace(folder, 40, 2)
    with pytest.raises(TraceError, match="are no slice"):
        read_trace(folder, -1, 2)


def test_a_cut_archive_is_refused(folder: Path, tmp_path: Path) -> None:
    write(folder, "cluster03.csv", [(f"job-{n * 7919 % 10007}", n, 601 + n * 31 % 977, 1) for n in range(20_000)])
    whole = tmp_path / "whole.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        archive.add(folder, arcname=".")
    data = whole.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(TraceError, match=r"cut\.tar\.gz"):
        read_trace(cut, 0, 60)


PUBLISHED = Path(os.environ.get("APPORTION_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "elasticflow-itp"


@pytest.mark.skipif(not (PUBLISHED / ARCHIVE).is_file(), reason=f"the public ITP trace is not at {PUBLISHED}")
def test_the_published_trace_has_the_published_numbers() -> None:
    jobs = read_trace(PUBLISHED)
    assert len(jobs) == 11_957
    assert {job.gpus for job in jobs} == {1, 2, 4, 8, 16, 32, 64}
    assert sum(job.gpus * job.duration_ms for job in jobs) // (168 * 3_600_000) == 1_247  # GPUs, on average
    everything = read_trace(PUBLISHED, 0, 60)
    assert len(everything) == 69_351
    assert round(sum(job.gpus * job.duration_ms for job in everything) / 3_600_000) == 1_632_720  # GPU-hours
