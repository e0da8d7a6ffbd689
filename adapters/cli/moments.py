"""The core before a tick, and the tick, for verbs that explain what the cycle decided or did not.

Starts at the newest snapshot before the tick and trusts the stored decisions from there; says how far it is. Never writes, never
decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.adapters.cli.asking import warn
from apportion.adapters.cli.failure import UNREACHABLE, Failure
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import open_logs
from apportion.adapters.cli.verbs import Place, use_kernels

if TYPE_CHECKING:
    from apportion.adapters.explaining.moment import Moment


async def moment_at(place: Place, seq: int) -> Moment:
    """Return the moment of the tick at ``seq``. Raises ``Failure`` when there is no log, ``ApportionError``."""
    use_kernels()
    from apportion.adapters.explaining.moment import moment_at as read
    from apportion.adapters.past.recalling import kept_by, newest

    async with open_logs(place) as logs:
        start = await newest(kept_by(place.home), logs.events, seq - 1)
        with progress("core", quiet=place.as_json) as show:
            return await read(logs.events, logs.decisions, seq, None if start is None else start.data, show)


async def moment_if_readable(place: Place, seq: int, without: str) -> Moment | None:
    """Return the moment of the tick at ``seq``; None, said on stderr, for who may ask the projector and not read the log."""
    from apportion.adapters.bus.connection import BusUnreachable

    try:
        return await moment_at(place, seq)
    except (BusUnreachable, Failure) as error:
        if isinstance(error, Failure) and error.code != UNREACHABLE:
            raise
        warn(place, f"{without} ({error})")
        return None
