"""Each oddity of the formats by itself, in small files of our own; and arbitrary bytes, of which no line may be lost."""

from __future__ import annotations

import codecs
import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.imports import mapped, sacct, swf, tres
from apportion.adapters.imports.attempt import BadFile, Unread
from apportion.adapters.imports.instants import Zone, duration_ms
from apportion.adapters.imports.lines import MAX_LINE_BYTES, lines_of
from tests.imports.reading import (
    UTC,
    attempts,
    dumped,
    numbered,
    passed,
    read_sacct,
    refusals,
    row,
    silent,
)

T0 = 1_483_228_800_000  # 2017-01-01T00:00:00Z
HOUR = 3_600_000


# -- sacct -------------------------------------------------------------------------------------------------------------------


def test_a_row_is_an_attempt_with_its_gpus_and_times() -> None:
    (found,) = attempts(
        read_sacct(dumped([row("7", "2017-01-01T00:00:00", "2017-01-01T01:00:00", "2017-01-01T03:00:00")]))
    )

    assert (found.submit_ms, found.start_ms, found.end_ms) == (T0, T0 + HOUR, T0 + 3 * HOUR)
    assert (found.gpus_milli, found.cpus, found.nodes, found.line) == (8_000, 16, 2, 2)
    assert (found.cluster, found.job, found.user, found.account, found.queue, found.qos) == (
        "hpc",
        "7",
        "ana",
        "physics",
        "batch",
        "normal",
    )


@pytest.mark.parametrize("step", ["7.batch", "7.extern", "7.0", "7_3.1"])
def test_steps_are_passed_over(step: str) -> None:
    reads = read_sacct(dumped([row(step, "2017-01-01T00:00:00", "2017-01-01T01:00:00", "2017-01-01T03:00:00")]))

    assert passed(reads) == ["heading", "step"]
    assert attempts(reads) == []


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 0", "CANCELLED"),
        ("PREEMPTED", "PREEMPTED"),
        ("TIMEOUT", "TIMEOUT"),
        ("NODE_FAIL", "NODE_FAIL"),
        ("CANCELLED+", "CANCELLED"),
    ],
)
def test_states_are_one_word(text: str, state: str) -> None:
    (found,) = attempts(read_sacct(dumped([row("7", "1483228800", "1483228800", "1483232400", state=text)])))

    assert found.state == state


def test_none_assigned_never_started_whatever_its_times_say() -> None:
    (found,) = attempts(read_sacct(dumped([row("7", "1483228800", "1483232400", "1483232400", nodes="None assigned")])))

    assert (found.start_ms, found.node_list) == (None, "")


@pytest.mark.parametrize("start", ["None", "Unknown", ""])
def test_no_start_never_started(start: str) -> None:
    (found,) = attempts(read_sacct(dumped([row("7", "1483228800", start, "1483232400")])))

    assert found.start_ms is None


def test_an_unknown_end_is_still_running_and_noted() -> None:
    notes: Counter[str] = Counter()
    (found,) = attempts(
        read_sacct(
            dumped([row("7", "1483228800", "1483228800", "Unknown", state="RUNNING")]),
            lambda text: notes.update([text]),
        )
    )

    assert found.end_ms is None
    assert notes == {"running when it was dumped": 1}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2017-01-01T01:00:00", T0 + HOUR), ("2017-01-01T02:00:00+01:00", T0 + HOUR), ("2017-01-01T01:00:00Z", T0 + HOUR),
        ("1483232400", T0 + HOUR), ("1483232400.25", T0 + HOUR + 250), ("1483232400000", T0 + HOUR),
        ("Unknown", None), ("None", None),
    ],
)  # fmt: skip
def test_times_are_read_in_every_form(text: str, ms: int | None) -> None:
    assert UTC.ms(text, "Start") == ms


def test_times_without_zone_are_of_the_zone_given() -> None:
    assert Zone("-08:00").ms("2017-01-01T00:00:00", "Start") == T0 + 8 * HOUR
    assert Zone("Europe/Berlin").ms("2017-07-01T00:00:00", "Start") == Zone("+02:00").ms("2017-07-01T00:00:00", "Start")


@pytest.mark.parametrize("name", ["Mars/Olympus", "+99:00", "-8", "../etc", ""])
def test_an_unknown_zone_is_said_so(name: str) -> None:
    with pytest.raises(ValueError, match=r"zone|offset"):
        Zone(name)


@pytest.mark.parametrize(
    ("text", "gpus", "kind"),
    [
        ("billing=8,cpu=1,gres/gpu=8,node=1", 8, ""), ("gres/gpu:a100=4,cpu=1", 4, "a100"),
        ("gres/gpu=4,gres/gpu:a100=4", 4, "a100"),
        ("gres/gpu:a100=4,gres/gpu:h100=2", 6, "a100+h100"), ("cpu=1,mem=62.50G,gres/gpumem=80G,gres/shard=3", 0, ""), ("", 0, ""),
    ],
)  # fmt: skip
def test_gpus_are_the_sum_or_its_parts_never_both(text: str, gpus: int, kind: str) -> None:
    found = tres.parse(text)

    assert (found.gpus, found.gpu_type) == (gpus, kind)


@pytest.mark.parametrize("text", ["gres/gpu=eight", "gres/gpu", "cpu=-1", "gres/gpu=99999999999999999999"])
def test_resources_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Unread):
        tres.parse(text)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row("7", "2017-01-01T00:00:00", "2017-01-01T03:00:00", "2017-01-01T01:00:00"), "before it starts"),
        (row("7", "Unknown", "2017-01-01T03:00:00", "2017-01-01T04:00:00"), "Submit is unknown"),
        (row("7", "yesterday", "1483228800", "1483228800"), "Submit is 'yesterday'"),
        (row("seven", "1483228800", "1483228800", "1483228800"), "'seven'"),
        (row("7", "1483228800", "1483228800", "1483228800", "gres/gpu=x"), "gres/gpu"),
        (row("7", "1483228800", "1483228800", "1483228800")[:60], "breaks off"),
        (row("7", "1483228800", "1483228800", "1483228800") + "|x|y", "fits no text column"),
        (row("7", "2500-01-01T00:00:00", "Unknown", "Unknown"), "outside 1970 to 2109"),
    ],
)
def test_a_malformed_row_is_named_with_its_reason_and_the_rest_is_read(line: str, reason: str) -> None:
    good = row("8", "1483228800", "1483228800", "1483232400")
    reads = read_sacct(dumped([line, good]))

    assert [read.job for read in attempts(reads)] == ["8"]
    assert [read.line for read in refusals(reads)] == [2]
    assert reason in refusals(reads)[0].reason


def test_the_separator_inside_a_command_is_taken_for_text() -> None:
    heading = "JobIDRaw|Submit|Start|End|AllocTRES|SubmitLine|WorkDir"
    line = "7|1483228800|1483228800|1483232400|gres/gpu=2|sbatch --wrap 'a | b | c'|/data"
    notes: Counter[str] = Counter()
    (found,) = attempts(read_sacct(f"{heading}\n{line}", lambda text: notes.update([text])))

    assert found.gpus_milli == 2_000
    assert notes == {"separator inside a name or command": 1}


def test_a_separator_in_a_name_between_numbers_finds_the_column_it_fits() -> None:
    heading = "JobIDRaw|JobName|Submit|Start|End|AllocTRES|SubmitLine"
    (found,) = attempts(read_sacct(f"{heading}\n7|a|b|1483228800|1483228800|1483232400|gres/gpu=2|sbatch x"))

    assert (found.name, found.gpus_milli) == ("a|b", 2_000)


def test_a_dump_without_heading_is_known_by_its_columns() -> None:
    fields = {"jobid": "7", "jobidraw": "7", "cluster": "c", "submit": "1483228800", "start": "1483228800", "end": "1483232400",
              "alloctres": "gres/gpu=2", "nodelist": "n1", "ncpus": "4"}  # fmt: skip
    line = "|".join(fields.get(name, "") for name in sacct.ORDERS[26])
    (found,) = attempts(read_sacct(line))

    assert (found.cluster, found.gpus_milli, found.cpus) == ("c", 2_000, 4)
    assert attempts(read_sacct(line + "|")) == [found]


def test_a_dump_of_unknown_columns_says_how_to_dump() -> None:
    with pytest.raises(BadFile, match="--columns"):
        read_sacct("7|a|b")
    with pytest.raises(BadFile, match="no column submit, start, end"):
        read_sacct("JobID|JobName|State\n7|a|COMPLETED")
    (found,) = attempts(read_sacct("7|1483228800|1483228800|1483232400", order=["JobID", "Submit", "Start", "End"]))
    assert found.job == "7"


def test_without_a_column_of_resources_gpus_are_unknown_and_noted() -> None:
    notes: Counter[str] = Counter()
    read_sacct("JobIDRaw|Submit|Start|End\n7|1483228800|1483228800|1483232400", lambda text: notes.update([text]))

    assert list(notes) == ["no column AllocTRES: GPUs are unknown and count as 0"]


# -- swf ---------------------------------------------------------------------------------------------------------------------

HEADER = "; UnixStartTime: 1483228800\n; TimeZone: -28800\n; Queue: 4 low\n; MaxRecords: 3"


def read_swf(*jobs: str, as_gpus: bool = False) -> tuple[list[object], Counter[str]]:
    """Return what each line of a log is, and what was noted."""
    notes: Counter[str] = Counter()
    text = "\n".join([HEADER, *jobs])
    header = swf.header_of(numbered(text))
    return list(swf.read(numbered(text), header, "log", lambda note: notes.update([note]), as_gpus)), notes


def job(
    number: int = 1, submit: int = 0, wait: int = 60, run: int = 600, held: int = 8, wanted: int = 16, status: int = 1
) -> str:
    return f"{number} {submit} {wait} {run} {held} -1 -1 {wanted} 3600 -1 {status} 95 3 12 4 -1 -1 -1"


def test_a_job_of_a_log_has_the_times_and_names_of_its_header() -> None:
    reads, _ = read_swf(job(), as_gpus=True)
    (found,) = attempts(reads)  # type: ignore[arg-type]

    assert (found.submit_ms, found.start_ms, found.end_ms) == (T0, T0 + 60_000, T0 + 660_000)
    assert (found.cpus, found.gpus_milli, found.user, found.group, found.queue, found.state) == (
        8,
        8_000,
        "95",
        "3",
        "low",
        "COMPLETED",
    )
    assert swf.header_of(numbered(HEADER)).zone == "-08:00"


def test_what_a_log_does_not_know_is_not_made_up() -> None:
    never, _ = read_swf(job(run=-1, status=5))
    no_wait, waits = read_swf(job(wait=-1))
    no_held, held = read_swf(job(held=-1))

    assert [(read.start_ms, read.end_ms) for read in attempts(never)] == [(None, T0 + 60_000)]  # type: ignore[arg-type]
    assert attempts(no_wait)[0].start_ms == T0  # type: ignore[arg-type]
    assert attempts(no_held)[0].cpus == 16  # type: ignore[arg-type]
    assert list(waits) == ["wait is unknown: started when submitted"]
    assert list(held) == ["processors allocated are unknown: those requested count"]


def test_parts_of_a_checkpointed_job_do_not_count_beside_its_whole() -> None:
    reads, _ = read_swf(job(status=1), job(status=2), job(status=3), job(status=4))

    assert len(attempts(reads)) == 1  # type: ignore[arg-type]
    assert passed(reads)[-3:] == ["part of a checkpointed job"] * 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line", ["1 2 3", job().replace("600", "soon"), job(number=-1), job(submit=-5), job() + " 7", job(run=10**15)]
)
def test_a_malformed_job_is_named(line: str) -> None:
    reads, _ = read_swf(line, job(number=2))

    assert [read.line for read in refusals(reads)] == [5]  # type: ignore[arg-type]
    assert [read.job for read in attempts(reads)] == ["2"]  # type: ignore[arg-type]


# -- csv ---------------------------------------------------------------------------------------------------------------------


def read_csv(text: str, mapping: str, delimiter: str = ",") -> list[object]:
    return list(mapped.read(numbered(text), mapped.parse_map(mapping), UTC, "site", silent, delimiter))


def test_a_csv_is_read_by_its_map() -> None:
    text = "id,when,secs,n,who\nj1,1483228800,90.5,0.5,ana\nj2,1483228800,1-00:00:00,8,ben"
    one, two = attempts(read_csv(text, "job=id,submit=when,duration=secs,gpus=n,user=who"))  # type: ignore[arg-type]

    assert (one.start_ms, one.end_ms, one.gpus_milli, one.user) == (T0, T0 + 90_500, 500, "ana")
    assert (two.end_ms, two.gpus_milli) == (T0 + 24 * HOUR, 8_000)


def test_a_csv_keeps_quoted_separators_and_names_quotes_left_open() -> None:
    reads = read_csv(
        'id,when,who\n"a,b",1483228800,"x ""y"""\n"c,1483228800,z\nd,1483228800,z', "job=id,submit=when,user=who"
    )

    assert [(read.job, read.user) for read in attempts(reads)] == [("a,b", 'x "y"'), ("d", "z")]  # type: ignore[arg-type]
    assert [read.line for read in refusals(reads)] == [3]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["job", "job=a,nose=b", "job=a", "submit=a", "job=a,submit=b,job=c", "job=a,submit=b,gpus=c,gpus_milli=d", ""],
)
def test_a_map_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|fields|field|keep one|maps no"):
        mapped.parse_map(text)


def test_a_csv_without_a_mapped_column_says_which_there_are() -> None:
    with pytest.raises(BadFile, match="no column t; its first line names id, when"):
        read_csv("id,when\n1,2", "job=id,submit=t")


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1-02:03:04", 93_784_000), ("02:03:04", 7_384_000), ("03:04", 184_000), ("90", 90_000), ("0.5", 500), ("", None)],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text, "duration") == ms


# -- any bytes ---------------------------------------------------------------------------------------------------------------


def test_a_packed_file_that_breaks_off_names_the_line(tmp_path: Path) -> None:
    body = "\n".join(
        dumped([row(str(number), "1483228800", "1483228800", "1483232400") for number in range(1, 4_000)]).splitlines()
    )
    packed = gzip.compress(body.encode())
    path = tmp_path / "dump.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    reads = list(sacct.read(lines_of(path), UTC, "hpc", silent))

    assert len(attempts(reads)) > 100
    assert [read.line for read in refusals(reads)] == [len(reads)]
    assert "breaks off" in refusals(reads)[0].reason


def test_a_line_that_is_no_line_is_named_and_the_next_one_read(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    good = row("8", "1483228800", "1483228800", "1483232400")
    path.write_bytes(dumped(["x" * (3 * MAX_LINE_BYTES + 5), good]).encode())
    reads = list(sacct.read(lines_of(path), UTC, "hpc", silent))

    assert [read.line for read in refusals(reads)] == [2]
    assert [read.line for read in attempts(reads)] == [3]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_mark_before_a_text_is_none_of_it(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Editors and spreadsheets put one before UTF-8; anywhere else it is a character."""
    body = dumped([row("8", "1483228800", "1483228800", "1483232400"), row("\ufeff9", "1483228800", "1483228800", "1483232400")])
    path = tmp_path / "dump"
    path.write_bytes(pack(codecs.BOM_UTF8 + body.encode()))

    assert [line.text for line in lines_of(path)] == body.splitlines()
    assert [found.job for found in attempts(list(sacct.read(lines_of(path), UTC, "hpc", silent)))] == ["8"]


GOOD = [
    dumped([row("7", "1483228800", "1483228800", "1483232400"), row("8.batch", "Unknown", "None", "")]).encode(),
    "\n".join([HEADER, job(), job(number=2, run=-1)]).encode(),
    b"id,when,secs,n\nj1,1483228800,90.5,0.5\nj2,2017-01-01,1:00:00,8\n",
]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw bytes of any kind: a good file with some bytes changed, cut or doubled, or nothing like one."""
    body = bytearray(draw(st.sampled_from([*GOOD, b""])))
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, len(body)))
        if draw(st.booleans()):
            body[at:at] = draw(
                st.one_of(
                    st.binary(max_size=6), st.sampled_from([b"\n", b"|", b'"', b"\x1f\x8b", b"-1", b"\x00", b"9" * 30])
                )
            )
        else:
            del body[at : at + draw(st.integers(0, 9))]
    return bytes(body)


@settings(deadline=None)
@given(bodies())
def test_whatever_the_bytes_each_line_is_an_attempt_or_named(
    tmp_path_factory: pytest.TempPathFactory, body: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(body)
    expected = len(list(lines_of(path)))
    readers = (
        lambda lines: sacct.read(lines, UTC, "c", silent),
        lambda lines: swf.read(lines, swf.header_of(lines_of(path)), "c", silent, True),
        lambda lines: mapped.read(lines, mapped.parse_map("job=id,submit=when,duration=secs,gpus=n"), UTC, "c", silent),
    )
    for read in readers:
        try:
            reads = list(read(lines_of(path)))
        except BadFile:
            continue
        assert [found.line for found in reads] == list(range(1, expected + 1))
