"""The log was cut: agents find the commands of what was submitted before, with no archive on their machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apportion.adapters.bus import topology
from apportion.adapters.bus.cut import declared
from apportion.adapters.bus.decisions import PART_BYTES
from apportion.adapters.bus.kept import Submitted, forget_but, keep, kept_record, kept_submission
from tests.archived import cut_in_half

InLab = Callable[[Callable[[Any], Any]], None]


async def cut_what_is_submitted(lab: Any) -> None:
    """Write so much more that half of each log holds all there is now, and cut that half."""
    for stream in (lab.bus.events, lab.bus.decisions):
        for number in range(await stream.last_seq() + 2):
            if stream is lab.bus.events:
                await lab.bus.publisher.publish("ap.ev.op.note.made", b"{}", f"note-{number}")
            else:
                await lab.decide()
    await cut_in_half(lab.bus, lab.home.archive, "log-1")


def test_jobs_and_services_from_before_the_cut_are_started(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        await lab.start_agent("n1")
        seqs = {name: await lab.submit(name, ["echo", name]) for name in ("seen", "unseen", "closed")}
        body = await lab.bus.events.body_at(seqs["seen"])
        jobs = [Submitted(name, seqs[name]) for name in ("seen", "unseen")]
        await keep(lab.bus.connection, [(job.seq, await lab.bus.events.body_at(job.seq)) for job in jobs], jobs)
        await cut_what_is_submitted(lab)
        state = (await topology.stream_info(lab.bus.connection, "EVENTS")).state
        assert state.first_seq > max(seqs.values())
        archive = lab.home.archive.rename(lab.home.root / "away")

        await lab.start_agent("n2")  # it has never seen an admission
        await lab.decide(lab.placed("seen", 0, nodes=("n1",)), lab.placed("unseen", 0, nodes=("n2",)))
        await lab.until(lambda: lab.output("seen", node="n1") == "seen\n", "the job that the agent saw admitted")
        await lab.until(lambda: lab.output("unseen", node="n2") == "unseen\n", "the job that it never saw")
        assert await lab.bus.events.body_at(seqs["seen"]) == body

        end = await lab.bus.events.last_seq()
        await lab.decide(lab.placed("closed", 1, run=1, nodes=("n1",)), lab.placed("closed", 1, run=2, nodes=("n2",)))

        async def both_refused() -> bool:  # not kept: what no core would do is refused, and said
            await lab.bus.events.last_seq()
            return sum(b"is not in the log" in record.body for record in await lab.bus.events.read(end, 1_000)) == 2

        await lab.until(both_refused, "the refusals of a job that is not kept")
        assert not any(task.done() for *_parts, task in lab.inside), "an agent has ended"
        archive.rename(lab.home.archive)
        assert (await lab.until_report("closed", "run.finished")).outcome == "refused"

    in_lab(scenario)


def test_an_agent_begins_where_the_log_does_even_where_more_was_dropped_than_cut(in_lab: InLab) -> None:
    """A replica may have dropped messages beyond the cut, and a batch in parts may be left in part."""

    async def scenario(lab: Any) -> None:
        for _ in range(7):
            await lab.decide()
        seq = await lab.submit("later", ["echo", "later"])
        job = Submitted("later", seq)
        await keep(lab.bus.connection, [(seq, await lab.bus.events.body_at(seq))], [job])
        last = await lab.bus.decisions.last_seq()
        end = await lab.bus.decisions.commit(b'{"large":"%s"}' % (b"x" * 3 * PART_BYTES), 1, last)
        assert end == last + 4
        for _ in range(2):
            await lab.decide()
        await cut_in_half(lab.bus, lab.home.archive, "log-1")
        left = await lab.bus.decisions.last_seq() - end + 2  # of the large one, the last two parts
        info = await topology.stream_info(lab.bus.connection, "DECISIONS")
        for config in ({**info.config, "discard": "old", "max_msgs": left}, info.config):
            await lab.bus.connection.api("STREAM.UPDATE.DECISIONS", config, topology.StreamInfo)
        cut = declared(info.config)
        assert cut is not None
        assert cut.cut_seq < last
        lab.home.archive.rename(lab.home.root / "away")

        await lab.start_agent("n2")
        await lab.decide(lab.placed("later", 0, nodes=("n2",)))
        await lab.until(lambda: lab.output("later", node="n2") == "later\n", "the job whose admission nobody has")

    in_lab(scenario)


def test_an_agent_that_was_away_for_too_long_says_what_to_do(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        agent = await lab.start_agent_process()
        pid = await lab.run_now("w", ["sleep", "60"], 0)
        agent.terminate()
        agent.wait(10)
        await cut_what_is_submitted(lab)
        lab.home.archive.rename(lab.home.root / "away")

        assert lab.spawn_agent().wait(20) == 1
        said = lab.agent_log()
        for words in ("was away for longer than the log reaches back", "$APPORTION_ARCHIVE", f"move {lab.home.agents / 'n1'} away"):
            assert words in said
        assert lab.alive(pid), "what runs is not its to end"

    in_lab(scenario)


def test_a_stream_that_would_not_keep_is_refused(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        connection, job = lab.bus.connection, Submitted("a", 1)
        await keep(connection, [(1, b"body")], [job])
        right = (await topology.stream_info(connection, "KEPT")).config
        for wrong in ({"max_msgs": 10}, {"max_age": 10**9 * 3600}, {"max_bytes": 10**6}, {"max_msgs_per_subject": 2}):
            await connection.api("STREAM.UPDATE.KEPT", {**right, **wrong}, topology.StreamInfo)
            with pytest.raises(topology.TopologyError, match=f"{next(iter(wrong))} is .* must be"):
                await keep(connection, [(1, b"body")], [job])
        await connection.api("STREAM.UPDATE.KEPT", right, topology.StreamInfo)
        await keep(connection, [(1, b"body")], [job])

    in_lab(scenario)


def test_what_is_over_is_forgotten_and_the_rest_stays(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        connection = lab.bus.connection
        assert await kept_record(connection, 1) is None  # nothing was ever kept
        assert await kept_submission(connection, "a") == 0
        jobs = [Submitted(f"job {number} * > .", number) for number in range(1, 301)]
        await keep(connection, [(job.seq, b"body %d" % job.seq) for job in jobs], jobs)
        await keep(connection, [(7, b"body 7")], jobs[6:7])  # again: nothing changes
        assert await kept_submission(connection, "job 300 * > .") == 300

        assert await forget_but(connection, [7, 9], ["job 7 * > .", "job 9 * > ."]) == 2 * 298

        assert [seq for seq in range(1, 301) if await kept_record(connection, seq)] == [7, 9]
        assert await kept_record(connection, 9) == b"body 9"
        assert [await kept_submission(connection, f"job {number} * > .") for number in (7, 8, 9)] == [7, 0, 9]

    in_lab(scenario)
