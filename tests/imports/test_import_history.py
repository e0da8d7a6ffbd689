"""What an import adds up to: days sum to the whole, pieces of a file to the file, attempts count once, ghosts never."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.comparing.story import story as story_of
from apportion.adapters.demo.trace import TraceError
from apportion.adapters.imports import jobs, organisation
from apportion.adapters.imports.attempt import Attempt, BadFile
from apportion.adapters.imports.instants import Zone
from apportion.projections.imported.history import History, HistoryError
from apportion.projections.imported.usage import Asked, UsageRefused, kinds, split_of, usage
from tests.imports.reading import broken_checks, by, dumped, kept, read_sacct, row, whole

HOUR = 3_600_000
T0 = 1_509_148_800_000  # 2017-10-28T00:00:00Z, the day before summer time ends in Europe
few = settings(max_examples=40, deadline=None)  # each makes a database or two
ZONES = ("UTC", "Europe/Berlin", "-08:00")


@st.composite
def histories(draw: st.DrawFn, most: int = 14) -> list[Attempt]:
    """Draw attempts: few job numbers, so that they are used again; some open, some that never ran, some the same."""
    found = []
    for line in range(1, draw(st.integers(1, most)) + 1):
        submit_ms = T0 + draw(st.integers(0, 40)) * HOUR // 2
        start_ms = draw(st.one_of(st.none(), st.integers(0, 60).map(lambda n, at=submit_ms: at + n * 613_000)))
        end_ms = draw(
            st.one_of(st.none(), st.integers(0, 90).map(lambda n, at=start_ms or submit_ms: at + n * 1_777_777))
        )
        found.append(
            Attempt(
                draw(st.sampled_from(["a", "b"])), draw(st.sampled_from(["1", "2", "3"])), submit_ms, start_ms, end_ms,
                user=draw(st.sampled_from(["ana", "ben"])), account=draw(st.sampled_from(["x", "y"])),
                state=draw(st.sampled_from(["S", "T"])),
                cpus=draw(st.integers(0, 64)), nodes=draw(st.integers(0, 4)),
                gpus_milli=draw(st.sampled_from([0, 500, 1_000, 8_000])), line=line,
            )
        )  # fmt: skip
    return found


def story(history: History) -> tuple[Any, ...]:
    """Return all that can be asked of a history."""
    return (
        usage(history.con, Asked(by=("day", "cluster", "user", "account", "state"))),
        usage(history.con, Asked()),
        kinds(history.con),
        history.con.execute(
            "select cluster, job, submit_ms, start_ms, end_ms, state, cpus from fact.imported_job order by all"
        ).fetchall(),
    )


@few
@given(histories(), st.data(), st.sampled_from(ZONES))
def test_any_split_into_imports_in_any_order_is_the_same_history(
    found: list[Attempt], data: st.DataObject, name: str
) -> None:
    zone, until_ms = Zone(name), T0 + 50 * HOUR
    pieces: list[list[Attempt]] = [[], [], []]
    for attempt in data.draw(st.permutations(found)):
        for piece in data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=2)):  # dumps may overlap
            pieces[piece].append(attempt)
    with History(None) as at_once, History(None) as in_pieces:
        kept(at_once, found, zone, until_ms)
        for piece in pieces:
            kept(in_pieces, piece, zone, until_ms)

        assert story(at_once) == story(in_pieces)


@few
@given(histories())
def test_the_best_row_of_each_key_stays(found: list[Attempt]) -> None:
    """The naive equivalent: a dictionary from key to the greatest row."""
    best: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for attempt in found:
        key = (attempt.cluster, attempt.job, attempt.submit_ms, attempt.start_ms)
        rank = (
            attempt.end_ms is not None,
            attempt.end_ms or 0,
            attempt.user,
            attempt.account,
            attempt.state,
            attempt.nodes,
            attempt.cpus,
        )
        best[key] = max(best.get(key, (False, 0, "", "", "", 0, 0)), rank)
    with History(None) as history:
        kept(history, found)
        rows = history.con.execute(
            'select cluster, job, submit_ms, start_ms, end_ms, "user", account, state, nodes, cpus from fact.imported_job'
        )
        ours = {key[:4]: (key[4] is not None, key[4] or 0, *key[5:]) for key in rows.fetchall()}

    assert ours == best


@few
@given(histories(), st.sampled_from(ZONES), st.integers(0, 100), st.integers(0, 100))
def test_days_sum_to_the_whole_exactly_and_cuts_to_what_lies_between(
    found: list[Attempt], name: str, one: int, other: int
) -> None:
    since_ms, until_ms = T0 + min(one, other) * HOUR, T0 + max(one, other) * HOUR + 1
    with History(None) as history:
        kept(history, found, Zone(name), T0 + 30 * HOUR)
        rows = history.con.execute(
            "select start_ms, counted_end_ms, gpus_milli, cpus, nodes from mart.imported_attempt where kind in ('ran', 'open')"
        ).fetchall()
        spans = [
            (max(0, min(end, until_ms) - max(start, since_ms)), end - start, gpus, cpus, nodes)
            for start, end, gpus, cpus, nodes in rows
        ]
        total, cut = whole(history), whole(history, since_ms=since_ms, until_ms=until_ms)
        days = by(history, "day").values()

        for column, place in (("gpu_us", 2), ("cpu_ms", 3), ("node_ms", 4)):
            assert total[column] == sum(row[column] for row in days) == sum(span[1] * span[place] for span in spans)
            assert cut[column] == sum(span[0] * span[place] for span in spans)
        assert {"key_unique", "days_sum", "lines_counted"}.isdisjoint(broken_checks(history))


def test_a_day_of_a_change_of_the_clock_has_25_hours() -> None:
    lines = dumped([row("7", "2017-10-28T00:00:00", "2017-10-28T12:00:00", "2017-10-30T12:00:00", "gres/gpu=1")])
    zone = Zone("Europe/Berlin")
    with History(None) as history:
        kept(history, read_sacct(lines, zone=zone), zone)
        hours = {day: row["gpu_us"] / 3_600_000_000 for day, row in by(history, "day").items()}

    assert hours == {"2017-10-28": 12, "2017-10-29": 25, "2017-10-30": 12}


def test_a_requeued_job_is_two_attempts_and_a_dump_read_twice_is_one() -> None:
    lines = dumped(
        [
            row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "2017-10-28T02:00:00", state="PREEMPTED"),
            row("7", "2017-10-28T00:00:00", "2017-10-28T03:00:00", "2017-10-28T05:00:00"),
        ]
    )
    with History(None) as history:
        first, again = kept(history, read_sacct(lines)), kept(history, read_sacct(lines))

        assert (first.merged.new, again.merged.new, again.merged.improved, again.merged.known) == (2, 0, 0, 2)
        assert whole(history)["gpu_us"] == 3 * 8 * 3_600_000_000
        assert [row["attempts"] for row in by(history, "state").values()] == [1, 1]
        assert broken_checks(history) == []


def test_a_later_dump_that_knows_the_end_replaces_the_running_row_in_either_order() -> None:
    running = read_sacct(dumped([row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "Unknown", state="RUNNING")]))
    ended = read_sacct(dumped([row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "2017-10-28T05:00:00")]))
    for order in ((running, ended), (ended, running)):
        with History(None) as history:
            for reads in order:
                kept(history, reads, until_ms=T0 + 2 * HOUR)
            assert whole(history)["gpu_us"] == 4 * 8 * 3_600_000_000


def test_a_ghost_is_not_counted_and_what_runs_is_until_the_dump() -> None:
    """Slurm lost the end of a job and used its number again; the first one is not running, whatever its row says."""
    lines = dumped(
        [
            row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "Unknown", state="RUNNING"),
            row("7", "2017-10-28T03:00:00", "2017-10-28T04:00:00", "Unknown", state="RUNNING"),
            row("9", "2017-10-28T03:00:00", "Unknown", "Unknown", state="PENDING", nodes="None assigned"),
        ]
    )
    with History(None) as history:
        kept(history, read_sacct(lines), until_ms=T0 + 10 * HOUR)

        assert kinds(history.con) == {"ghost": 1, "open": 1, "waiting": 1}
        assert whole(history)["gpu_us"] == 6 * 8 * 3_600_000_000
        assert broken_checks(history) == ["ghosts"]


def test_hourly_reports_are_what_counting_every_second_says() -> None:
    """The way sreport counts: GPU-seconds of each account within hours; here second by second, with requeue, reuse and ghost."""
    lines = dumped(
        [
            row("7", "2017-10-28T00:00:00", "2017-10-28T00:20:10", "2017-10-28T01:10:00", state="PREEMPTED"),
            row("7", "2017-10-28T00:00:00", "2017-10-28T01:30:00", "2017-10-28T02:00:05"),
            row("7", "2017-10-28T01:50:00", "2017-10-28T02:10:00", "2017-10-28T02:59:59", account="arts"),
            row("8", "2017-10-28T00:00:00", "2017-10-28T00:30:00", "Unknown", state="RUNNING"),
            row("8", "2017-10-28T02:00:00", "2017-10-28T02:00:00", "2017-10-28T02:00:00", "gres/gpu=1", account="arts"),
        ]
    )
    counted = [(7, 1_210, 4_200, "physics"), (7, 5_400, 7_205, "physics"), (7, 7_800, 10_799, "arts")]
    with History(None) as history:
        kept(history, read_sacct(lines))
        for hour in range(4):
            ours = {
                key: row["gpu_us"]
                for key, row in by(
                    history, "account", since_ms=T0 + hour * HOUR, until_ms=T0 + (hour + 1) * HOUR
                ).items()
            }
            for account in ("physics", "arts"):
                seconds = sum(
                    1
                    for _, start, end, who in counted
                    if who == account
                    for at in range(start, end)
                    if at // 3_600 == hour
                )
                assert ours.get(account, 0) == seconds * 8 * 1_000_000


def test_an_interrupted_import_leaves_nothing() -> None:
    def breaking() -> Any:
        yield from read_sacct(dumped([row("7", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "2017-10-28T02:00:00")]))
        raise BadFile("the disk is gone")

    with History(None) as history:
        with pytest.raises(BadFile):
            kept(history, breaking())
        assert kinds(history.con) == {}
        kept(
            history, read_sacct(dumped([row("8", "2017-10-28T00:00:00", "2017-10-28T01:00:00", "2017-10-28T02:00:00")]))
        )
        assert kinds(history.con) == {"ran": 1}


def test_a_file_that_is_no_history_is_left_alone(tmp_path: Path) -> None:
    import duckdb

    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as con:
        con.execute("create table t (a integer)")
    text = tmp_path / "text.duckdb"
    text.write_text("no database")

    for path in (other, text):
        with pytest.raises(HistoryError, match=path.name):
            History(path)
    with duckdb.connect(str(other), read_only=True) as con:
        assert con.execute("select count(*) from duckdb_tables()").fetchone() == (1,)


def test_a_split_is_one_of_the_words() -> None:
    assert split_of(["day", "size", "pi"]) == ("day", "gpus_milli", "account")
    with pytest.raises(UsageRefused, match="day, cluster, user"):
        split_of(['day"; drop table fact.imported_job; --'])


# -- jobs to play, units -----------------------------------------------------------------------------------------------------


def test_jobs_to_play_are_submissions_with_demands_and_no_starts(tmp_path: Path) -> None:
    lines = dumped(
        [
            row("7", "2017-10-28T02:00:00", "2017-10-28T03:00:00", "2017-10-28T04:00:00", state="PREEMPTED"),
            row("7", "2017-10-28T02:00:00", "2017-10-28T05:00:00", "2017-10-28T08:00:00"),
            row(
                "7",
                "2017-10-29T02:00:00",
                "2017-10-29T03:00:00",
                "2017-10-29T03:30:00",
                "gres/gpu:h100=4",
                account="a b/c",
            ),
            row("8", "2017-10-28T01:00:00", "2017-10-28T03:00:00", "2017-10-28T04:00:00", "cpu=4"),
            row("9", "2017-10-28T01:00:00", "2017-10-28T03:00:00", "2017-10-28T03:00:00", nodes="None assigned"),
        ]
    )
    path = tmp_path / "jobs.csv"
    with History(None) as history:
        intake = kept(history, read_sacct(lines))
        assert jobs.written(path, jobs.chosen(history, intake.clusters, "account")) == 2
    assert jobs.is_jobs(path)
    found = jobs.read(path, 2)

    assert [(one.job_id, one.submit_ms, one.duration_ms, one.gpus, one.program) for one in found.jobs] == [
        ("7", 2 * HOUR, 3 * HOUR, 8, "physics"), ("7:2", 26 * HOUR, HOUR // 2, 4, "a-b-c")
    ]  # fmt: skip
    assert found.start_ms == int(datetime.fromisoformat("2017-10-28T00:00:00+00:00").timestamp()) * 1_000
    assert len(jobs.read(path, 1).jobs) == 1


def test_jobs_are_played_by_the_comparison(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = [",".join(jobs.COLUMNS), f"1,{T0 + HOUR},{HOUR},12,a", f"2,{T0 + 2 * HOUR},{HOUR},4,b", f"3,{T0 + 90 * HOUR},{HOUR},4,b"]
    path.write_text("\n".join(rows))
    played = story_of(path, 1, None, 1)

    assert [(one.submit_ms, one.gpus, one.program) for one in played.jobs] == [(HOUR, 16, "a"), (2 * HOUR, 4, "b")]
    assert (played.world.start_ms, played.world.layout.gpus, [path for path, _ in played.tree[1:]]) == (T0, 16, ["itp/a", "itp/b"])


@pytest.mark.parametrize("line", ["7,1,2", "7,x,1,1,a", "7,5,0,1,a", "7,5,10,-1,a"])
def test_a_trace_that_was_edited_wrongly_names_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(",".join(jobs.COLUMNS) + f"\n1,4,10,1,a\n{line}\n")

    with pytest.raises(TraceError, match="line 3"):
        jobs.read(path, 1)


def test_units_are_chains_of_names(tmp_path: Path) -> None:
    hierarchy, members = tmp_path / "h.csv", tmp_path / "m.csv"
    hierarchy.write_text('"sci","Sciences",""\n"phy","Physics, all of it","sci"\n"opt","Optics","phy"\n')
    members.write_text('"g1","opt"\n"g2","sci"\n')

    assert organisation.units(hierarchy, members) == [
        ("g1", "Sciences", "Physics, all of it", "Optics"),
        ("g2", "Sciences", "", ""),
    ]
    members.write_text('"g1","nowhere"\n')
    with pytest.raises(BadFile, match="line 1: unit 'nowhere'"):
        organisation.units(hierarchy, members)
    members.write_text('"g1","a"\n')
    hierarchy.write_text('"a","A","b"\n"b","B","a"\n')
    with pytest.raises(BadFile, match="circle"):
        organisation.units(hierarchy, members)
