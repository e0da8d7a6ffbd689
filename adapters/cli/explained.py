"""What the core itself says of a tick: asked of the projector, which keeps a core for that, else found here from the log.

The projector answers for ticks from the newest it was asked about on, in a fraction of the time that reading the log takes. A
question about an earlier tick, one that it is not ready for, and one of a directory without a server are answered here, for who may
read the log; for everybody else there is no answer, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.asking import Opened, asked
from apportion.adapters.cli.failure import Failure
from apportion.adapters.cli.moments import moment_if_readable
from apportion.adapters.cli.verbs import Place

if TYPE_CHECKING:
    from apportion.adapters.explaining.moment import Moment

WITHOUT = "what the core itself says needs the log, which cannot be read here"


async def explained(
    place: Place, source: Opened, seq: int, question: dict[str, Any], here: Callable[[Moment], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """Return the answer to ``question`` after the tick at ``seq``; ``here`` answers it from a moment. None: nobody can."""
    if source.connection is not None:
        try:
            reply = await asked(source.connection.client, "explain", seq=seq, **question)
        except Failure:
            pass  # an older projector, an earlier tick, or it is still reading: the log has the answer too
        else:
            return (reply.first or {}).get("explanation")
    moment = await moment_if_readable(place, seq, WITHOUT)
    return None if moment is None else here(moment)
