"""The past range that a question is about: where it begins and ends in the log, and what happened in it.

Reads both logs once. A range begins after a decided cycle, with the log's first at the earliest; it ends with a record. What is
outside the log is an error that says where the log is: a range is never cut silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.adapters.cli.arguments import Mark
from apportion.adapters.cli.cores import core_in
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.proving import seq_of
from apportion.adapters.cli.showing import counting
from apportion.adapters.cli.stores import Logs, open_logs
from apportion.adapters.cli.verbs import Place
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.adapters.whatif.history import History
    from apportion.adapters.whatif.measures import Measured
    from apportion.core.engine import Core

WEEK_MS = 7 * 86_400_000


async def history_of(place: Place, from_: Mark | None, to: Mark | None) -> tuple[Core, History, Measured]:
    """Read the range. Raises ``Failure`` when there is none."""
    from apportion.adapters.whatif.reading import read

    async with open_logs(place) as logs:
        from_seq, to_seq = await _range_of(logs, from_, to)
        core = await core_in(place, logs, from_seq)
        with counting("reading", "records", quiet=place.as_json) as show:
            history, before = await read(core, logs.events, logs.decisions, to_seq, show)
    if not history.cycles:
        raise Failure(
            FAILED,
            f"nothing was decided between seq {history.from_seq:,} ({render.when(history.from_ms)}) and {history.to_seq:,} "
            f"({render.when(history.to_ms)})",
            "name a longer range with --from and --to; the earliest begins with the log's first cycle",
        )
    return core, history, before


async def _range_of(logs: Logs, from_: Mark | None, to: Mark | None) -> tuple[int, int]:
    """Return the records that the range begins after and ends with. Raises ``Failure`` for what is outside the log."""
    from apportion.adapters.logs.claims import claimed_ms
    from apportion.adapters.logs.moments import opening, seq_at
    from apportion.adapters.whatif.reading import first_cycle

    last_seq, first_seq = await logs.events.last_seq(), await first_cycle(logs.decisions)
    if not first_seq:
        raise Failure(
            FAILED, "nothing has been decided in this log", "`apportion up` starts a cluster, `apportion demo` a simulated one"
        )
    to_seq = last_seq if to is None else await seq_of(logs, to, "--to", last_seq)
    if from_ is not None:
        from_seq = max(first_seq, await seq_of(logs, from_, "--from", last_seq))
    else:
        opened, records = await opening(logs.events), await logs.events.read(max(0, to_seq - 1), 1)
        begin_ms = claimed_ms(records[0], stated=opened.stated) - WEEK_MS
        from_seq = first_seq if begin_ms <= opened.time_ms else max(first_seq, await seq_at(logs.events, logs.decisions, begin_ms))
    if from_seq >= to_seq:
        raise usage(
            f"the range from seq {from_seq:,} to {to_seq:,} is empty; the log has records 1 to {last_seq:,}, and its first cycle "
            f"is at seq {first_seq:,}",
            "name a range with --from and --to that ends after it begins",
        )
    return from_seq, to_seq
