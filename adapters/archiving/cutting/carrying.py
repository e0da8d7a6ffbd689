"""Carrying a planned and proved cut out: keep what agents need, cut both streams, forget what was kept and is over.

In this order, so that at no moment a submission that an agent may ask for is neither in EVENTS nor kept. Killed in between, too
much is kept; the next cut forgets it. It decides nothing.
"""

from __future__ import annotations

from apportion.adapters.archiving.cutting.plan import Plan
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.kept import forget_but, keep
from apportion.adapters.bus.shortening import OnStep, nothing, shorten_both
from apportion.adapters.logs.archive import ArchiveEventLog


async def carry_out(connection: Connection, wanted: Plan, after_step: OnStep = nothing) -> None:
    """Cut as planned. Raises as ``keep`` and ``shorten``."""
    log = ArchiveEventLog(wanted.directory)  # proved to be what EVENTS holds, and has what an earlier cut dropped
    bodies = [(await log.read(seq - 1, 1))[0].body for seq in wanted.open_seqs]
    await keep(connection, zip(wanted.open_seqs, bodies, strict=True), wanted.open_jobs)
    after_step("KEPT stored")
    await shorten_both(connection, wanted.decisions, wanted.events, after_step)
    await forget_but(connection, wanted.open_seqs, [job.workload for job in wanted.open_jobs])
    after_step("KEPT forgotten")
