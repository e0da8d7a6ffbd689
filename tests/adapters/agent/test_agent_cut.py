"""The log was cut: agents find the commands of what was submitted before, with no archive on their machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apportion.adapters.bus import topology
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
    await cut_in_half(lab.bus, lab.home.archive)


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

        await lab.decide(lab.placed("closed", 1, nodes=("n2",)))  # not kept: what no core would do is refused, and said
        archive.rename(lab.home.archive)
        refused = await lab.until_report("closed", "run.finished")
        assert refused.outcome == "refused"
        assert "is not in the log" in refused.detail

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
