"""When a record happened, as far as it can be told without folding the log.

``claimed_ms`` is what a record claims; ``times`` what the core counts for each of a row of records. Pure functions of records; the
core alone decides, and a day of an archive ends where the core says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from apportion.core.envelope import Record, too_deep
from apportion.core.units import first_time_ms, next_time_ms


class _Claim(msgspec.Struct, frozen=True, gc=False):
    """The one field of a body that can move a stated clock."""

    at_ms: int = 0


_claims = msgspec.json.Decoder(_Claim)


def claimed_ms(record: Record, *, stated: bool) -> int:
    """Return the instant that a record claims; 0 where its body states none that can be read."""
    if not stated:
        return record.stored_ms
    try:
        return 0 if too_deep(record.body) else _claims.decode(record.body).at_ms
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0


def times(records: Sequence[Record], time_ms: int | None, *, stated: bool) -> Iterator[int]:
    """Yield the time of each record after one at ``time_ms`` (None: at the log's beginning).

    What stands before ``log.opened``, which the core refuses, has the time it claims.
    """
    for record in records:
        claimed = claimed_ms(record, stated=stated)
        following = first_time_ms(claimed) if time_ms is None else next_time_ms(time_ms, claimed, stated=stated)
        time_ms = following if following is not None else time_ms
        yield time_ms if time_ms is not None else 0
