"""Carrying a planned and proved cut out: keep what agents need, cut both streams, forget what was kept and is over.

In this order, so that at no moment a submission that an agent may ask for is neither in EVENTS nor kept. Killed in between, too
much is kept; the next cut forgets it. Where a replica may drop more than was to go (``shortening``), the submissions of open work
among that are kept too. It decides nothing.
"""

from __future__ import annotations

from apportion.adapters.archiving.cutting.plan import Open, Plan
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.kept import forget_but, keep
from apportion.adapters.bus.shortening import OnStep, nothing, shorten_both
from apportion.adapters.logs.archive import ArchiveEventLog


async def carry_out(connection: Connection, wanted: Plan, after_step: OnStep = nothing) -> tuple[str, ...]:
    """Cut as planned; return the replicas that were not there. Raises as ``keep`` and ``shorten``."""
    kept = wanted.open
    await _keep(connection, wanted, kept)
    after_step("KEPT stored")
    behind = await shorten_both(connection, wanted.decisions, wanted.events, after_step)
    if behind:
        await _keep(connection, wanted, wanted.later)
        kept = Open(kept.jobs + wanted.later.jobs, kept.seqs + wanted.later.seqs)
    await forget_but(connection, kept.seqs, [job.workload for job in kept.jobs])
    after_step("KEPT forgotten")
    return behind


async def _keep(connection: Connection, wanted: Plan, work: Open) -> None:
    log = ArchiveEventLog(wanted.directory)  # proved to be what EVENTS holds, and has what an earlier cut dropped
    bodies = [(await log.read(seq - 1, 1))[0].body for seq in work.seqs]
    await keep(connection, zip(work.seqs, bodies, strict=True), work.jobs)
