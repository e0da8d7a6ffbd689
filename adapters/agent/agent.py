"""The node agent: makes one machine agree with what the decisions order, and reports what it sees.

Four loops around one state: *follow* folds DECISIONS into ``Orders``; *tend* compares orders, run folders and
processes, and acts; *report* sends the outbox; *beat* says that the node lives and what runs on it. All acting is
level-triggered: whatever happened while the agent was away, comparing again is enough. So a duplicate decision is
harmless, and so is ``kill -9`` of the agent at any point. It ends on ``stop`` within seconds with or without a server, and
leaves its runs alone; ``leaving`` stops them first.

It decides nothing about runs: it starts what is placed, stops what is to be stopped, and refuses only what it cannot
start. Its own clock measures graces and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from apportion.adapters.agent import leaving
from apportion.adapters.agent.follower import Follower, log_id
from apportion.adapters.agent.gpus import GpuSource
from apportion.adapters.agent.launch import Refused, bare_spec, spec_of, submission_of
from apportion.adapters.agent.membership import AgentSettings, Membership
from apportion.adapters.agent.memory import Memory
from apportion.adapters.agent.orders import Order
from apportion.adapters.agent.outbox import Outbox
from apportion.adapters.agent.reports import Reports
from apportion.adapters.agent.rundir import Exit, RunDir, all_runs
from apportion.adapters.agent.runs import Happening, Runs
from apportion.adapters.bus.archived import ArchiveMissing
from apportion.adapters.bus.connection import ApiError
from apportion.adapters.bus.kept import kept_submission
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.publisher import OutcomeUnknown, PublishRefused
from apportion.adapters.processes import ending

__all__ = ["Agent", "AgentSettings"]

logger = logging.getLogger(__name__)

IDLE_S = 5.0
RETRY_S = 0.5
STARTS_AT_ONCE = 4  # then look at the rest again: a start costs some ten milliseconds
WAITING_NOTE_S = 10.0


class Agent:
    """One node's agent. ``run`` returns after ``stop`` was called, or raises what the agent cannot live with."""

    def __init__(self, settings: AgentSettings, gpus: GpuSource, bus: Bus, memory: Memory) -> None:
        """Put the parts together; nothing happens before ``run``."""
        self._settings = settings
        self._gpus = gpus
        self._bus = bus
        self._memory = memory
        self._dir = memory.agent_dir
        self._outbox = Outbox(self._dir / "outbox", settings.principal, memory.secret)
        self._reports = Reports(self._outbox, self._dir)
        self._follower = Follower(bus.connection, bus.decisions, memory)
        self._changed = asyncio.Event()
        self._posted = asyncio.Event()
        self._stopping = asyncio.Event()
        self._begun = asyncio.Event()  # it is known what runs here
        self._runs = Runs(self._dir, self._changed.set)
        self._membership = Membership(settings, gpus, memory, self._outbox)
        self._leaving = False  # nothing new is started
        self._waiting: dict[str, float] = {}  # run that waits for local GPUs -> since when

    def stop(self) -> None:
        """Let ``run`` return; runs keep running under their supervisors."""
        self._stopping.set()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Be the agent; call ``ready`` when the node has joined.

        Raises ``LogMismatch``, ``LogGap``, ``JoinRefused``: the agent must not go on, the runs do.
        """
        tasks: list[asyncio.Task[Any]] = []
        try:
            if await ending.until_stopped(self._stopping, self._begin()) is None:
                logger.warning("stopped before the decisions were read to their end: nothing was started or stopped")
                return
            self._begun.set()
            tasks = [
                asyncio.create_task(self._follow(), name="follow"),
                asyncio.create_task(self._tend(), name="tend"),
                asyncio.create_task(self._report(ready), name="report"),
                asyncio.create_task(self._beat(), name="beat"),
                asyncio.create_task(self._stopping.wait(), name="stop"),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await ending.let_go(*tasks)
            self._runs.close()
            await ending.within("closing the reader of DECISIONS", self._follower.close())
            if self._begun.is_set():
                self._follower.save(now=True)

    async def _begin(self) -> None:
        """Find out what is ordered and what runs here, and ask to join; waits through outages."""
        self._memory.bind_log(await log_id(self._bus.connection, self._bus.events))
        await self._follower.catch_up()
        self._adopt()
        self._follower.save(now=True)  # from now on this agent has a memory: what is placed is placed on it
        self._membership.join()

    async def leave(self, reason: str, tell: leaving.Tell = logger.info) -> None:
        """Stop every run within its grace, then take the node out; then let ``run`` return. ``tell`` hears how it goes.

        Ends and checkpoints are reported as ever; a run that was only interrupted is not reported as failed: it ends
        with the node (``node.left``), and may be resumed elsewhere or at the next start.
        """
        self._leaving = True
        try:
            await leaving.leave(self._begun, self._runs, self._outbox, lambda: self._say_left(reason), tell)
        finally:
            self.stop()

    def _say_left(self, reason: str) -> None:
        self._membership.leave(reason)
        self._posted.set()

    # -- start ---------------------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Settle what the decisions left behind while nobody looked: adopt what runs, end what is not ordered."""
        for order in self._follower.orders.live.values():
            folder = RunDir(self._dir, order.workload, order.run)
            spec = folder.spec()
            if spec is not None:
                if not folder.reported().ended:
                    self._runs.adopt(folder, spec)
            elif self._follower.fresh and not order.closed:
                reason = "this node's agent had no memory of it when it started"
                self._runs.settle(bare_spec(order, self._settings.node), Exit(lost=reason))
        for folder in all_runs(self._dir):
            if folder.key not in self._follower.orders.live and folder.supervised():
                logger.warning("%s runs here and is not ordered any more: stopping it", folder.key)
                folder.order_stop(self._settings.closed_grace_ms)
        adopted = self._runs.refs()
        if adopted:
            logger.info("adopted %d runs: %s", len(adopted), ", ".join(adopted))

    # -- loops ---------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._follower.take()
            self._changed.set()

    async def _tend(self) -> None:
        while True:
            self._changed.clear()
            self._membership.judge(self._follower.orders.refusals)
            happenings, again_s = self._runs.tend()
            for happening in happenings:
                order = self._follower.orders.live.get(happening.key)
                if order is not None and not order.closed and not self._interrupted(order, happening):
                    self._reports.tell(self._runs.spec(happening.key), happening)
            if self._outbox:
                self._posted.set()
            again_s = min(again_s, await _patiently(self._act, RETRY_S, IDLE_S))
            self._follower.save()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again_s):
                    await self._changed.wait()

    async def _report(self, ready: Callable[[], None]) -> None:
        while True:
            self._posted.clear()
            while self._outbox:
                try:
                    name, seq = await self._outbox.send_oldest(self._publish)
                except PublishRefused as refusal:
                    logger.error("%s; the report is kept and sent again", refusal)
                    await asyncio.sleep(IDLE_S)
                    continue
                self._reports.arrived(name)
                if self._membership.arrived(name, seq):
                    ready()
                self._changed.set()
            await self._posted.wait()

    async def _beat(self) -> None:
        await self._membership.joined.wait()

        async def once() -> float:
            return await self._membership.beat(self._runs, self._follower.orders, self._publish)

        while True:
            await _patiently(once, 0.0, 0.0)
            await asyncio.sleep(self._settings.beat_ms / 1_000)

    # -- one step of each ----------------------------------------------------------------------------------------------

    async def _act(self) -> float:
        """Make the world agree with the orders; return in how many seconds to look again at the latest."""
        again_s, starts = IDLE_S, 0
        live = self._follower.orders.live
        for order in list(live.values()):
            if order.key not in self._runs:
                if order.closed:
                    self._settled(order)
                elif not self._reports.end_arrived(order.workload, order.run):
                    again_s = min(again_s, await self._start(order))
                    starts += order.key in self._runs
                    if starts >= STARTS_AT_ONCE:
                        return 0.0
            elif self._runs.over(order.key):
                if order.closed:
                    self._runs.forget(order.key)
                    self._settled(order)
            elif order.closed:
                self._runs.stop(order.key, self._settings.closed_grace_ms)
            elif order.stop is not None:
                self._runs.stop(order.key, order.stop.grace_ms)
        return again_s

    async def _start(self, order: Order) -> float:
        """Start a run, or settle that it is not started; return in how many seconds to try again."""
        if self._leaving or self._membership.left:
            return IDLE_S
        if order.stop is not None:
            detail = f"{order.stop.why} before it was started"
            self._runs.settle(bare_spec(order, self._settings.node), Exit(signalled=True, killed=True, detail=detail))
            self._changed.set()
            return 0.0
        blocking = self._runs.holders(order.gpus, order.milli_each)
        if blocking:
            now = asyncio.get_running_loop().time()
            since = self._waiting.setdefault(order.key, now)
            if now - since > WAITING_NOTE_S:
                logger.warning("%s waits for GPUs that %s still holds here", order.key, ", ".join(blocking))
                self._waiting[order.key] = now
            return RETRY_S
        self._waiting.pop(order.key, None)
        if not order.event_seq:  # admitted before the log was cut
            order.event_seq = await kept_submission(self._bus.connection, order.workload)
        body = await self._submission(order.event_seq) if order.event_seq else None
        if order.stop is not None or order.closed:  # came while we read
            return 0.0
        if self._leaving:  # who stops the runs would not see this one
            return IDLE_S
        try:
            submitted = submission_of(order, body)
            folder = RunDir(self._dir, order.workload, order.run)
            self._runs.start(spec_of(order, submitted, self._settings.node, self._gpus, folder.path))
            logger.info("starting %s on GPUs %s", order.key, ",".join(map(str, order.gpus)))
        except Refused as refusal:
            logger.warning("refusing %s: %s", order.key, refusal)
            self._runs.settle(bare_spec(order, self._settings.node), Exit(refused=str(refusal)))
        self._changed.set()
        return 0.0

    async def _submission(self, seq: int) -> bytes | None:
        """Return the body of a submission; None when it was cut, is not kept, and no archive here has it."""
        try:
            return await self._bus.events.body_at(seq)
        except ArchiveMissing as error:
            logger.warning("the submission of seq %d cannot be read: %s", seq, error)
            return None

    def _settled(self, order: Order) -> None:
        self._reports.pointless(order.workload, order.run)
        self._follower.orders.live.pop(order.key, None)

    def _interrupted(self, order: Order, happening: Happening) -> bool:
        """Tell whether only the leaving of the node has caused this end: then ``node.left`` will tell it."""
        exit_ = happening.exit
        if not self._leaving or order.stop is not None or exit_ is None:
            return False
        return exit_.killed or (exit_.signalled and exit_.exit_code != 0)

    async def _publish(self, subject: str, body: bytes, event_id: str) -> int:
        return (await self._bus.publisher.publish(subject, body, event_id)).seq


async def _patiently(step: Callable[[], Awaitable[float]], retry_s: float, idle_s: float) -> float:
    """Do a step that needs the bus; when that is away or the disk is full, say so and come back after ``retry_s``."""
    try:
        return min(idle_s, await step())
    except (TimeoutError, ApiError, OutcomeUnknown, PublishRefused) as error:
        logger.warning("the bus does not answer (%s: %s); trying again", type(error).__name__, error)
    except OSError as error:
        logger.error("%s; trying again", error)
    return retry_s
