"""What the core itself says of a tick: asked of the projector, which keeps a core for that, else found here from the log.

The projector answers for ticks from the newest it was asked about on, in a fraction of the time that reading the log takes. A
question about an earlier tick, one that it is not ready for, and one of a directory without a server are answered here, for who may
read the log; for everybody else there is no answer, and that is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.asking import Opened, warn
from apportion.adapters.cli.moments import moment_if_readable
from apportion.adapters.cli.verbs import Place

if TYPE_CHECKING:
    from nats.aio.client import Client

    from apportion.adapters.explaining.moment import Moment

PATIENCE_S = 60.0  # with a projector that is still reading: it goes on where this process would begin anew
WITHOUT = "what the core itself says needs the log, which cannot be read here"


async def explained(
    place: Place, source: Opened, seq: int, question: dict[str, Any], here: Callable[[Moment], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """Return the answer to ``question`` after the tick at ``seq``; ``here`` answers it from a moment. None: nobody can."""
    if source.connection is not None:
        answered, found = await _asked(place, source.connection.client, {"seq": seq, **question})
        if answered:
            return found
    moment = await moment_if_readable(place, seq, WITHOUT)
    return None if moment is None else here(moment)


async def _asked(place: Place, client: Client, question: dict[str, Any]) -> tuple[bool, dict[str, Any] | None]:
    """Return whether the projector answered, and what."""
    from apportion.adapters.projector.asking import NoAnswer, ask

    began, said = time.monotonic(), False
    while True:
        try:
            document = await ask(client, "explain", question)
        except NoAnswer:
            return False, None
        error = document.get("error")
        if error is None:
            return True, document["rows"][0]["explanation"]
        if error.get("kind") != "time" or time.monotonic() - began > PATIENCE_S:
            if error.get("kind") == "failed":
                warn(place, f"{error.get('what')}; asking the log instead")
            return False, None  # an older projector, or an earlier tick: the log has the answer too
        if not said:
            warn(place, str(error.get("what")))
            said = True
