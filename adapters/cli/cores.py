"""The core as it was after a record, for verbs that show the core's own numbers.

Starts at the newest snapshot at or before the record and trusts the stored decisions from there, so it is quick on the
machine that runs the core; elsewhere it reads the whole log, and says how far it is. A snapshot whose record is not in this
log is passed over. Never writes, never decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.adapters.cli.asking import warn
from apportion.adapters.cli.failure import UNREACHABLE, Failure
from apportion.adapters.cli.showing import progress
from apportion.adapters.cli.stores import Logs, open_logs
from apportion.adapters.cli.verbs import Place, use_kernels

if TYPE_CHECKING:
    from apportion.core.engine import Core


async def core_at(place: Place, seq: int) -> Core:
    """Return the core after record ``seq``, a decided tick. Raises ``Failure`` when there is no log, ``ApportionError``."""
    use_kernels()
    from apportion.adapters.past.replaying import core_from

    if seq == 0:
        return core_from(None)
    async with open_logs(place) as logs:
        return await core_in(place, logs, seq)


async def core_in(place: Place, logs: Logs, seq: int) -> Core:
    """Return the core after record ``seq`` of logs that are open."""
    from apportion.adapters.past.replaying import state_at

    start = await _snapshot(place, logs, seq)
    with progress("core", quiet=place.as_json) as show:
        return await state_at(logs.events, logs.decisions, seq, start, show)


async def core_if_readable(place: Place, seq: int, without: str) -> Core | None:
    """Return the core at ``seq``; None, said on stderr, for who may ask the projector and not read the log."""
    from apportion.adapters.bus.connection import BusUnreachable

    try:
        return await core_at(place, seq)
    except (BusUnreachable, Failure) as error:
        if isinstance(error, Failure) and error.code != UNREACHABLE:
            raise
        warn(place, f"{without} ({error})")
        return None


async def _snapshot(place: Place, logs: Logs, seq: int) -> bytes | None:
    """Return the newest snapshot at or before ``seq`` that belongs to this log and to this program."""
    from apportion.adapters.past.recalling import kept_by, newest

    found = await newest(kept_by(place.home), logs.events, seq)
    return None if found is None else found.data
