"""The projector as a process: ``apportion project``.

Composition only: bus, projection, follower, answers, live reads, published copies, signals. SIGTERM and an interrupt end it after
the commit in progress, with a last copy, whether a server answers or not; a kill at any moment loses nothing, because rows and
position are one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable

import duckdb

from apportion.adapters.bus.local import Bus
from apportion.adapters.explaining.serving import Explainer
from apportion.adapters.past.recalling import kept_by
from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home
from apportion.adapters.projector.answering import Answering
from apportion.adapters.projector.building import open_or_build
from apportion.adapters.projector.following import Follower
from apportion.adapters.projector.listening import Door, bound, listening
from apportion.core.errors import ApportionError
from apportion.projections import storage
from apportion.projections.runner import Projection, ProjectionBroken

logger = logging.getLogger(__name__)

PUBLISH_EVERY_S = 30.0
REBUILDS_MAX = 3
END_WITHIN_S = 25.0  # most of it for the commit in progress and the copy of a large file
MEMORY_LIMIT = "2GB"


async def serve(
    home: Home,
    *,
    url: str = "",
    rebuild: bool = False,
    publish_every_s: float = PUBLISH_EVERY_S,
    ready: Callable[[str], None] | None = None,
    http: Door | None = None,
) -> None:
    """Project the log at ``url`` (empty: the home's embedded server) until a signal ends it.

    ``rebuild`` builds the file anew first. ``ready`` is called with one line when queries are answered. ``http`` is where live
    reads listen, None for nowhere. Raises ``ApportionError`` for what a person must look at.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    name = "apportion project"
    async with await (Bus.open(url, name=name, archives=(home.archive,)) if url else Bus.at_home(home, name=name)) as bus:
        projector = Projector(home, bus, publish_every_s=publish_every_s, ready=ready, http=http)
        with ending.on_signals(name, projector.stop, END_WITHIN_S):
            await projector.run(rebuild=rebuild)


class Projector:
    """All parts around one file; a broken file is replaced by a new one, a few times, without ending the process."""

    def __init__(
        self, home: Home, bus: Bus, *, publish_every_s: float = PUBLISH_EVERY_S, ready: Callable[[str], None] | None = None,
        http: Door | None = None,
    ) -> None:  # fmt: skip
        self._home = home
        self._bus = bus
        self._publish_every_s = publish_every_s
        self._ready = ready
        self._http = http
        self._url = ""
        self._stopping = asyncio.Event()
        self._follower: Follower | None = None
        explainer = Explainer(bus.events, bus.decisions, kept_by(home))
        self._answering = Answering(bus.connection.client, bus.events.last_seq, explainer)

    def stop(self) -> None:
        """Let ``run`` end after the commit in progress."""
        self._stopping.set()
        if self._follower is not None:
            self._follower.stop()

    async def run(self, *, rebuild: bool = False) -> None:
        """Project and answer until ``stop``. Raises ``CannotListen`` when live reads cannot be offered as asked."""
        if self._http is None:
            await self._run(rebuild)
            return
        from apportion.adapters.projector.web import app

        with bound(self._home, self._http) as (listener, url):
            self._url = url
            logger.info("live reads at %s/q", url)
            async with listening(app(self._answering, self._home.published, self._http.token), listener):
                await self._run(rebuild)

    async def _run(self, rebuild: bool) -> None:
        await self._answering.open()
        try:
            for attempt in range(REBUILDS_MAX + 1):
                building = open_or_build(
                    self._home.projection, self._bus.events, self._bus.decisions, rebuild=rebuild, tell=self._building
                )
                built = await ending.until_stopped(self._stopping, building)
                if built is None:
                    return
                try:
                    await self._follow(built.result())
                    return
                except ProjectionBroken as broken:
                    if attempt == REBUILDS_MAX:
                        raise
                    logger.error("%s", broken)
                    self._answering.unfollow("its file broke, and it is being built anew")
                    rebuild = True
        finally:
            await self._answering.close()

    def _building(self, done: int, last: int) -> None:
        self._answering.building = f"it is being built from the log, {done:,} of {last:,} cycles are in"
        logger.info("building: %s of %s cycles", f"{done:,}", f"{last:,}")

    async def _follow(self, projection: Projection) -> None:
        _limit(projection.con)
        follower = self._follower = Follower(projection, self._bus.events, self._bus.decisions)
        following = asyncio.create_task(follower.run())
        publishing = asyncio.create_task(self._publish_often(follower))
        try:
            if self._stopping.is_set():
                follower.stop()
            announcing = asyncio.create_task(self._announce(follower))
            try:
                done, _ = await asyncio.wait((following, publishing), return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                announcing.cancel()
        finally:
            await ending.let_go(following, publishing)
            self._answering.unfollow("it is being closed")
            await self._close(follower)

    async def _announce(self, follower: Follower) -> None:
        """Be ready when everything decided so far can be read."""
        last = await self._bus.decisions.last_seq()
        while follower.projection.position.decision_seq < last:
            await asyncio.sleep(0.02)
        await self._answering.follow(follower)
        line = f"projection at seq {follower.projection.position.seq}" + (f"  {self._url}/q" if self._url else "")
        logger.info("ready: %s", line)
        if self._ready is not None:
            self._ready(line)

    async def _publish_often(self, follower: Follower) -> None:
        """Publish a copy now and then, when something changed."""
        published_seq = -1
        while True:
            await asyncio.sleep(self._publish_every_s)
            seq = follower.projection.position.seq
            if seq != published_seq:
                await follower.quietly(lambda: storage.publish(follower.projection, self._home.published))
                published_seq = seq

    async def _close(self, follower: Follower) -> None:
        """Leave a file that can be read without us, and a last copy."""
        self._follower = None
        projection = follower.projection
        try:
            await follower.close()
            if projection.position.seq:
                await asyncio.to_thread(storage.publish, projection, self._home.published)
        except (ApportionError, duckdb.Error) as error:
            logger.error("the projection was not closed cleanly: %s", error)
        finally:
            projection.close()


def _limit(con: duckdb.DuckDBPyConnection) -> None:
    """Bound what the engine takes. One thread: each query runs on its caller's, and small inserts are quicker alone."""
    con.execute(f"set global memory_limit = '{MEMORY_LIMIT}'")
    con.execute("set global threads = 1")
