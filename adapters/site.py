"""The one administrative step of a site with its own nats-server: make the streams, write the first record.

``python -m apportion.adapters.site --admin URL --operator URL --log-id institute-2026 --replicas 3``, with URLs such as
``nats://admin:...@host:4222``; ``--help`` tells the rest.

Decides nothing. Streams that exist are left as they are, and refused when they are not as required; a log that is open
is never opened again, and refused when another log is asked for. So the step may be repeated. ``apportion up`` needs
none of this: it does the same for the server it embeds.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Sequence

from apportion.adapters.bus import topology
from apportion.adapters.bus.archived import lost
from apportion.adapters.bus.connection import Connection, without_password
from apportion.adapters.bus.messages import get_message
from apportion.adapters.bus.publisher import Publisher, PublishRefused
from apportion.adapters.ingress.check import check_event
from apportion.core.envelope import decode_envelope, subject_of
from apportion.core.errors import ApportionError
from apportion.core.events import LogOpened, decode_data, encode_event

OPENED = "log.opened"
_WRONG_LAST_SEQUENCE = 10071


class OtherSite(ApportionError):
    """The log there is open already, and is not the one asked for."""


async def set_up(
    admin_url: str, operator_url: str, opened: LogOpened, *, principal: str = "operator", replicas: int = 1
) -> bool:
    """Make missing streams and open the log; True when it was opened now, False when it was open as asked.

    Raises ``RequestRefused`` for a bad ``opened``, ``TopologyError`` for streams not as required, ``OtherSite``.
    """
    check_event(opened)
    async with await Connection.open(admin_url, name="apportion-site") as admin:
        await topology.create(admin, replicas=replicas)
    async with await Connection.open(operator_url, name="apportion-site") as connection:
        publisher = await Publisher.open(connection)
        event_id = secrets.token_hex(16)
        body = encode_event(opened, event_id=event_id, at_ms=time.time_ns() // 1_000_000)
        try:
            # The server refuses unless the log is empty, so two people cannot both open it.
            await publisher.publish(subject_of(principal, OPENED), body, event_id, expected_last_seq=0)
        except PublishRefused as error:
            if error.err_code != _WRONG_LAST_SEQUENCE:
                raise
            await _check_opened(connection, opened)
            return False
        finally:
            await publisher.close()
    return True


async def _check_opened(connection: Connection, opened: LogOpened) -> None:
    """Check that the first record opens this log; where it was cut, that the cut names this log."""
    gone = await lost(connection, "EVENTS")
    if gone is not None:
        if gone.cut.log_id != opened.log_id:
            raise OtherSite(
                f"the log at {connection.url} is {gone.cut.log_id!r}, not {opened.log_id!r}; give its id, or another server"
            )
        return
    first = await get_message(connection, topology.EVENTS, 1)
    found = None
    if first is not None and first.subject.endswith(f".{OPENED}"):
        envelope = decode_envelope(first.body)
        found = decode_data(envelope.type, envelope.v, envelope.data)
    if found != opened:
        raise OtherSite(
            f"the log at {connection.url} begins with {found or (first and first.subject)}, not with {opened}; "
            "give the same log id and operators, or another server"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the step from the command line; 0 when the site is as asked."""
    parser = argparse.ArgumentParser(prog="python -m apportion.adapters.site", description="Set up a site once.")
    parser.add_argument("--admin", required=True, metavar="URL", help="server and a user who may create streams")
    parser.add_argument("--operator", required=True, metavar="URL", help="server and a user who may open the log")
    parser.add_argument("--principal", default="operator", help="the name that user publishes under")
    parser.add_argument("--log-id", required=True, metavar="NAME", help="the name of this log, for good")
    parser.add_argument("--operators", default="operator,core", metavar="A,B", help="who may operate; the core is one")
    parser.add_argument("--replicas", type=int, default=1, help="copies of each stream: 1, or 3 in a cluster")
    asked = parser.parse_args(argv)
    opened = LogOpened(log_id=asked.log_id, time_source="stored", operators=tuple(asked.operators.split(",")))
    try:
        now = asyncio.run(
            set_up(asked.admin, asked.operator, opened, principal=asked.principal, replicas=asked.replicas)
        )
    except ApportionError as error:
        sys.stderr.write(f"not set up: {error}\n")
        return 1
    sys.stdout.write(f"{opened.log_id} is {'open' if now else 'open already'} at {without_password(asked.operator)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
