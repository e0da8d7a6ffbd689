"""How a node leaves its pool: its runs are stopped within their graces, their ends are reported, then the node is out.

Decides only when waiting is over. Every step has a bound of its own: the runs that of their graces, the reports one of
seconds, with or without a server; whoever asked is told what it takes and what is given up. Nothing is lost by that: a
report waits on disk, and a run that could not be ended is adopted at the next start.

It must never say that the node has left while a run of it lives: its GPUs would be taken for free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from apportion.adapters.agent.outbox import Outbox
from apportion.adapters.agent.runs import Runs
from apportion.adapters.text import render

logger = logging.getLogger(__name__)

BEGIN_S = 10.0  # to learn what is ordered, when the agent has only just started
KILL_S = 10.0  # beyond the longest grace: for SIGKILL to end the last process, and for us to see it
REPORTS_S = 10.0  # for the log to take what is reported, and as long again for the node's leaving
TELL_EVERY_S = 3.0
LOOK_EVERY_S = 0.05
NAMED = 4  # runs in one line

Tell = Callable[[str], None]


async def leave(begun: asyncio.Event, runs: Runs, outbox: Outbox, say_left: Callable[[], None], tell: Tell) -> bool:
    """Stop the runs, wait for their reports, ``say_left`` and wait for that; False when something was given up."""
    if not await _until(lambda: "" if begun.is_set() else "the log does not answer, and with it what runs here", BEGIN_S, tell):
        tell("the log does not answer: no run was stopped, and the node did not leave")
        return False
    stopping = _Stopping(runs)
    while not await _until(stopping.waits_for, stopping.left_s(), tell):
        if stopping.left_s() <= 0:
            tell(f"given up: {stopping.named()} did not end; the node does not leave, the next start adopts them")
            return False
    if not await _until(lambda: _reports(outbox), REPORTS_S, tell):
        tell(f"the runs are stopped; given up: {_reports(outbox)}. They are kept on disk and sent at the next start")
        return False
    say_left()
    if not await _until(lambda: "the log's answer to the node's leaving" if outbox else "", REPORTS_S, tell):
        tell("the runs are stopped; given up: the log's answer to the node's leaving. It is sent again at the next start")
        return False
    return True


async def _until(waits_for: Callable[[], str], seconds: float, tell: Tell) -> bool:
    """Look until there is nothing to wait for, for at most ``seconds``; say now and then what it is."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    until, tell_at = now + seconds, now + TELL_EVERY_S
    while what := waits_for():
        now = loop.time()
        if now >= until:
            return False
        if now >= tell_at:
            tell(f"waits for {what}; at most {until - now:.0f} s more")
            tell_at = now + TELL_EVERY_S
        await asyncio.sleep(min(LOOK_EVERY_S, until - now))
    return True


def _reports(outbox: Outbox) -> str:
    return f"the log's answer to {render.many(len(outbox), 'report')}" if outbox else ""


class _Stopping:
    """The runs that are being stopped, and until when each must be gone."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._gone_at: dict[str, float] = {}
        self.waits_for()

    def waits_for(self) -> str:
        """Ask every living run to stop that was not asked yet, and say which are left; empty when none is."""
        for key in self._runs.refs():
            if key not in self._gone_at and not self._runs.over(key):
                grace_ms = self._runs.spec(key).grace_ms
                self._gone_at[key] = asyncio.get_running_loop().time() + grace_ms / 1_000 + KILL_S
                self._runs.stop(key, grace_ms)
        return f"{self.named()} to end within their grace" if self._living() else ""

    def left_s(self) -> float:
        """Return how long the last of them still has."""
        return max((self._gone_at[key] for key in self._living()), default=0.0) - asyncio.get_running_loop().time()

    def named(self) -> str:
        """Return the living ones as a few words."""
        living = self._living()
        more = f" and {len(living) - NAMED} more" if len(living) > NAMED else ""
        return ", ".join(living[:NAMED]) + more

    def _living(self) -> list[str]:
        return [key for key in self._gone_at if key in self._runs and not self._runs.over(key)]
