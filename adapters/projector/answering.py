"""Named queries, answered from the projection: over NATS (``ap.q.<name>`` with JSON parameters), and for who else asks here.

Each request runs in a read-only transaction on a cursor of its own, at most ``READERS`` at a time, and is interrupted when it
takes longer than its limit; so a reader can slow the writer down but not stop it. Answers hold for one decided tick and say
which, and how far the projection is behind the core. ``wait`` answers when a sequence is decided, projected and readable.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec

from apportion.adapters.explaining.serving import Behind, Explainer, Past
from apportion.adapters.processes import ending
from apportion.adapters.projector.asking import PART_HEADER, SUBJECT, split
from apportion.adapters.projector.following import Follower
from apportion.projections import audit, queries
from apportion.projections.queries import AsOf, QueryRefused
from apportion.projections.report import report_at

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

logger = logging.getLogger(__name__)

READERS = 2
QUEUE_MAX = 64
LIMIT_S = 10.0
LONG_LIMIT_S = 120.0
EXPLAIN = "explain"
LONG = frozenset(("audit", "report"))
WAIT_DEFAULT_MS = 10_000
WAIT_MAX_MS = 300_000

StreamEnd = Callable[[], Awaitable[int]]


class Refusal(Exception):
    """An answer that is an error: kind, what was wrong, what to do."""

    def __init__(self, kind: str, what: str, do: str = "") -> None:
        super().__init__(what)
        self.kind = kind
        self.document = {"error": {"kind": kind, "what": what, "do": do}}


class Answering:
    """Subscribes and answers. Until ``follow`` has been given a follower, every question is answered with ``stale``."""

    def __init__(self, client: Client, stream_end: StreamEnd, explainer: Explainer | None = None) -> None:
        self._client = client
        self._explainer = explainer
        self._stream_end = stream_end
        self._end = (0.0, 0)  # when asked, last sequence of EVENTS
        self._follower: Follower | None = None
        self._cursors: asyncio.Queue[duckdb.DuckDBPyConnection] = asyncio.Queue()
        self._readers = ThreadPoolExecutor(READERS, "projector-read")
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Any = None
        self.building = "it is just starting"

    async def open(self) -> None:
        """Begin to answer."""
        self._subscription = await self._client.subscribe(f"{SUBJECT}.*", cb=self._received)

    async def follow(self, follower: Follower) -> None:
        """Answer from this follower's projection from now on."""
        loop = asyncio.get_running_loop()
        self._cursors = asyncio.Queue()
        for _ in range(READERS):
            self._cursors.put_nowait(await loop.run_in_executor(self._readers, _cursor, follower.projection.con))
        self._follower = follower

    def unfollow(self, why: str) -> None:
        """Answer ``stale`` from now on."""
        self._follower = None
        self.building = why

    async def close(self) -> None:
        """Stop answering; questions in progress are dropped."""
        if self._subscription is not None and not self._client.is_closed:
            await ending.within("no longer listening to questions", self._subscription.unsubscribe())
        await ending.let_go(*self._tasks)
        if self._explainer is not None:
            await self._explainer.close()
        while not self._cursors.empty():
            self._cursors.get_nowait().close()
        self._readers.shutdown()

    async def _received(self, message: Msg) -> None:
        if not message.reply:
            return
        if len(self._tasks) >= QUEUE_MAX:
            busy = Refusal("time", f"{QUEUE_MAX} questions wait already", "ask again in a moment")
            await self._send(message.reply, busy.document)
            return
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        try:
            document = await self.ask(name, _params(message.data))
        except Refusal as refusal:
            document = refusal.document
        await self._send(message.reply, document)

    async def _send(self, reply: str, document: dict[str, Any]) -> None:
        parts = split(msgspec.json.encode(document))
        for number, part in enumerate(parts, 1):
            await self._client.publish(reply, part, headers={PART_HEADER: f"{number}/{len(parts)}"})

    @property
    def readable_seq(self) -> int:
        """The tick that answers hold for when no other is asked for; 0 while the projection cannot be read."""
        return self._follower.readable_seq if self._follower is not None else 0

    async def ask(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer as a document: columns, types, rows, as_of. Raises ``Refusal``."""
        try:
            return await self._document(name, params)
        except QueryRefused as refused:
            raise Refusal("stale" if "not projected yet" in str(refused) else "usage", str(refused)) from None
        except Refusal:
            raise
        except Exception as error:
            logger.exception("query %s failed", name)
            what = f"query {name} failed: {type(error).__name__}: {str(error)[:500]}"
            raise Refusal("failed", what, "`apportion doctor` looks at the projector") from error

    async def freshness(self) -> dict[str, int]:
        """Return how far answers reach now, as ``as_of`` of an answer. Raises ``Refusal`` while nothing can be read."""
        follower = await self._fresh()
        return await self._as_of(follower, AsOf(follower.readable_seq, follower.projection.position.time_ms))

    async def _fresh(self) -> Follower:
        """Return the follower once what is committed can be read."""
        follower = self._follower
        if follower is None:
            raise Refusal("stale", f"the projection cannot be read yet: {self.building}", "ask again in a moment")
        try:
            async with asyncio.timeout(LIMIT_S):
                await follower.fresh()
        except TimeoutError:
            raise Refusal("time", f"the projection did not become readable within {LIMIT_S:g} s", "ask again") from None
        return follower

    async def _document(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        follower = self._follower
        if follower is None:
            raise Refusal("stale", f"the projection cannot be read yet: {self.building}", "ask again in a moment")
        if name == "wait":
            reached = await follower.reach(_count(params, "seq"), _timeout_s(params, "timeout_ms"))
            at = AsOf(follower.readable_seq, follower.projection.position.time_ms)
            return {"columns": ["reached"], "rows": [{"reached": reached}], "as_of": await self._as_of(follower, at)}
        if name == EXPLAIN:
            return await self._explained(follower, params)
        if name == "decision_of" and params.get("wait_ms") is not None:
            event_seq = params["event_seq"] = _count(params, "event_seq")
            await follower.reach(event_seq, _timeout_s(params, "wait_ms"))
        follower = await self._fresh()
        seq, at_ms = _optional(params, "seq"), _optional(params, "at_ms")
        document, at = await self._read(name, seq, at_ms, params)
        document["as_of"] = await self._as_of(follower, at)
        return document

    async def _explained(self, follower: Follower, params: dict[str, Any]) -> dict[str, Any]:
        """Answer from the core's own functions: why a workload waits, or why it is not on a node, after the tick at ``seq``."""
        seq, node, trials = _count(params, "seq"), params.pop("node", ""), bool(params.pop("trials", True))
        workload = params.pop("workload", "")
        _nothing_more(EXPLAIN, params)
        if self._explainer is None:
            raise Refusal("stale", "this projector keeps no core to explain from")
        try:
            if node:
                found = await self._explainer.explain_node(seq, str(node), str(workload))
            else:
                found = await self._explainer.explain(seq, str(workload), trials=trials)
        except Behind as behind:
            raise Refusal("time", str(behind), "ask again in a moment") from None
        except Past as past:
            raise Refusal("stale", str(past), "whoever may read the log finds the answer there") from None
        at = AsOf(seq, int((found or {}).get("time_ms") or 0))
        return {"columns": ["explanation"], "rows": [{"explanation": found}], "as_of": await self._as_of(follower, at)}

    async def _as_of(self, follower: Follower, at: AsOf) -> dict[str, int]:
        """Return how far the answer reaches, and how far the projection is behind the core."""
        now = time.monotonic()
        if now - self._end[0] > 1.0:
            self._end = (now, await self._stream_end())
        behind = follower.behind_since
        lag = max(0, follower.decided_seq - follower.readable_seq)
        return {
            "seq": at.seq,
            "time_ms": at.time_ms,
            "lag": lag,
            "lag_ms": int((now - behind) * 1000) if lag and behind is not None else 0,
            "stream_seq": max(self._end[1], at.seq),
        }

    async def _read(self, name: str, seq: int | None, at_ms: int | None, params: dict[str, Any]) -> tuple[dict[str, Any], AsOf]:
        loop = asyncio.get_running_loop()
        limit_s = LONG_LIMIT_S if name in LONG else LIMIT_S
        cursor = await self._cursors.get()
        running = loop.run_in_executor(self._readers, _run, cursor, name, seq, at_ms, params)
        try:
            done, _ = await asyncio.wait((running,), timeout=limit_s)
            if not done:
                cursor.interrupt()
                await asyncio.wait((running,))
                raise Refusal(
                    "time", f"query {name} took longer than {limit_s:g} s and was stopped", "ask for less: a budget, a time span"
                )
            return running.result()
        except asyncio.CancelledError:
            cursor.interrupt()
            raise
        finally:
            if running.done():
                self._cursors.put_nowait(cursor)
            else:
                running.add_done_callback(lambda _done: self._cursors.put_nowait(cursor))


def _cursor(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    cursor = con.cursor()
    cursor.execute("set TimeZone = 'UTC'")
    return cursor


def _run(
    con: duckdb.DuckDBPyConnection, name: str, seq: int | None, at_ms: int | None, params: dict[str, Any]
) -> tuple[dict[str, Any], AsOf]:
    """Answer one query on a reader's thread, in a read-only transaction."""
    con.execute("begin transaction read only")
    try:
        at = queries.as_of(con, seq, at_ms)
        if name == "report":
            _nothing_more(name, params)
            return {"columns": ["report"], "rows": [{"report": report_at(con, at)}]}, at
        if name == "audit":
            check = params.pop("check", None)
            _nothing_more(name, params)
            if check is not None and check not in audit.checks():
                raise QueryRefused(f"no check is called {check!r}; there are: {', '.join(audit.checks())}")
            table = audit.audit_at(con, queries.as_of(con), check).table()
        else:
            table = queries.run_at(con, name, at, queries.expanded(name, params))
        return {"columns": table.columns, "types": table.types, "rows": table.dicts()}, AsOf(table.as_of_seq, table.as_of_ms)
    finally:
        con.execute("rollback")


def _nothing_more(name: str, params: dict[str, Any]) -> None:
    if params:
        raise QueryRefused(f"query {name} has no parameter {', '.join(sorted(params))}")


def _params(data: bytes) -> dict[str, Any]:
    try:
        params = msgspec.json.decode(data or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal("usage", f"the parameters are not one JSON object: {error}", "send {} or {\"name\": value}") from error
    return {name: value for name, value in params.items() if value is not None}


def _optional(params: dict[str, Any], name: str) -> int | None:
    return _count(params, name) if name in params else None


def _count(params: dict[str, Any], name: str) -> int:
    value = params.pop(name, None)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise Refusal("usage", f"{name} must be a whole number from 0 on, got {value!r}")
    return value


def _timeout_s(params: dict[str, Any], name: str) -> float:
    return min(_count(params, name) if name in params else WAIT_DEFAULT_MS, WAIT_MAX_MS) / 1000
