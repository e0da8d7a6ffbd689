"""The scheduler as a process: ``apportion serve``.

Composition only: bus, snapshots, signals around one ``SchedulerService``. SIGTERM and an interrupt end it cleanly:
exit code 0 within seconds, also when no server answers; then what was not decided is left to the next start.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

from apportion.adapters.bus.local import Bus
from apportion.adapters.past.snapshots import ARCHIVED, DiskSnapshots, WithArchived
from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home
from apportion.adapters.service.ports import Snapshots
from apportion.adapters.service.scheduler import SchedulerService, Settings
from apportion.core.errors import LogMismatch

logger = logging.getLogger(__name__)

TAKEOVER_AFTER_S = 5.0
END_WITHIN_S = 25.0  # most of it for the snapshot of a large state; a server that does not answer costs STOP_PATIENCE_S


async def serve(
    home: Home,
    *,
    url: str = "",
    standby: bool = False,
    takeover_after_s: float | None = TAKEOVER_AFTER_S,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Be the scheduler of the log at ``url`` (empty: the home's embedded server) until a signal ends it.

    A standby takes over when nothing is decided for ``takeover_after_s`` while something is due; None: never by itself.
    ``ready`` is called with one line when it has caught up. Raises ``ApportionError`` for everything a person must look at.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    name = "apportion serve" + (" --standby" if standby else "")
    async with await (Bus.open(url, name=name, archives=(home.archive,)) if url else Bus.at_home(home, name=name)) as bus:
        service = SchedulerService(
            bus.events,
            bus.decisions,
            bus.publisher,
            await _snapshots(home, bus),
            role="standby" if standby else "leader",
            settings=Settings(takeover_after_s=takeover_after_s if standby else None),
        )
        announcing = asyncio.get_running_loop().create_task(_announce(service, ready))
        try:
            with ending.on_signals(name, service.stop, END_WITHIN_S):
                await service.run()
        finally:
            announcing.cancel()


async def _snapshots(home: Home, bus: Bus) -> Snapshots:
    """Return where snapshots are kept; where the log was cut and its archive is at hand, with those of the archive."""
    own = DiskSnapshots(home.snapshots)
    try:
        behind = await bus.events.behind()
    except LogMismatch as error:  # not needed while a snapshot of this core lies beyond the cut
        logger.warning("%s", error)
        return own
    return own if behind is None else WithArchived(own, DiskSnapshots(behind.directory / ARCHIVED))


async def _announce(service: SchedulerService, ready: Callable[[str], None] | None) -> None:
    await service.ready.wait()
    line = f"{service.role} at seq {service.core.seq}, cycle {service.core.cycle}"
    logger.info("ready: %s", line)
    if ready is not None:
        ready(line)
