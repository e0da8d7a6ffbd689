"""Connection, logs and publisher in one object, as every process of one installation needs them.

Composition only. ``Bus.open`` connects, audits the streams (and creates missing ones only when asked to), and returns
what speaks through that one connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apportion.adapters.bus import topology
from apportion.adapters.bus.archived import joined_decisions, joined_events
from apportion.adapters.bus.connection import BusUnreachable, Connection
from apportion.adapters.bus.publisher import WINDOW, Publisher
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home


class Bus:
    """``events`` and ``decisions`` (the log ports), ``publisher``, ``connection``; ``close`` ends them all.

    What was cut from the streams is read from an archive: one of ``archives``, or where it was when the cut was made.
    """

    def __init__(self, connection: Connection, publisher: Publisher, archives: Sequence[Path] = ()) -> None:
        self.connection = connection
        self.publisher = publisher
        self.events = joined_events(connection, archives)
        self.decisions = joined_decisions(connection, archives)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        name: str = "apportion",
        create: bool = False,
        max_file_bytes: int = 0,
        duplicate_window_s: int = topology.DUPLICATE_WINDOW_S,
        window: int = WINDOW,
        bulk: bool = True,
        timeout_s: float = 5.0,
        archives: Sequence[Path] = (),
    ) -> Bus:
        """Connect to ``url``; with ``create`` make missing streams first (the one administrative step).

        Raises ``BusUnreachable`` when no server answers and ``TopologyError`` when the streams are not as required.
        """
        connection = await Connection.open(url, name=name, bulk=bulk, timeout_s=timeout_s)
        try:
            if create:
                await topology.create(
                    connection, max_file_bytes=max_file_bytes, duplicate_window_s=duplicate_window_s
                )
            else:
                await topology.require(connection)
            return cls(connection, await Publisher.open(connection, window=window), archives)
        except BaseException:
            await connection.close()
            raise

    @classmethod
    async def at_home(cls, home: Home, *, name: str = "apportion", create: bool = False, window: int = WINDOW) -> Bus:
        """Connect to the embedded server that runs for ``home``. Raises ``BusUnreachable`` when none does."""
        server = EmbeddedServer.running(home)
        if server is None:
            raise BusUnreachable(f"no nats-server runs for {home.root}; start it with `apportion up`")
        simulated = server.sync == "relaxed"
        return await cls.open(
            server.url,
            name=name,
            create=create,
            max_file_bytes=server.file.max_file_bytes,
            duplicate_window_s=topology.SIMULATION_DUPLICATE_WINDOW_S if simulated else topology.DUPLICATE_WINDOW_S,
            window=window,
            archives=(home.archive,),
        )

    async def close(self) -> None:
        """Close everything within seconds, whatever the server does; harmless when closed."""
        await ending.within("closing the publisher", self.publisher.close())
        await ending.within("closing the reader of EVENTS", self.events.close())
        await ending.within("closing the reader of DECISIONS", self.decisions.close())
        await self.connection.close()

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()
