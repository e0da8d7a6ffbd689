"""The FastStream application of the ingress: one handler per event type, and a status.

Each handler reads ``ap.in.<principal>.<type>`` in the queue group ``ingress`` (any number of processes share the load),
has the request checked, publishes the event under its id, and answers where it is stored. It subscribes to subjects
only: nothing of it is a consumer of EVENTS, so it can neither acknowledge nor end a message there.

Decisions
    * The request is decoded by ``check`` and not by the framework's validation, whose answer to a bad message is a log
      line; ours names field, value and rule. The handlers' annotations are for the AsyncAPI document.
    * A request that reaches no type's handler (a misspelt type) meets ``unknown``, so that it gets an answer too.
    * Requests are handled concurrently. Order is by answer: whoever needs B after A sends B when A is answered.
    * The id is also the message id of the log: a repeated request is stored once. Since ids are one name space for
      all principals, a repeated id is compared with what is stored, and a different event under it is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from fast_depends.msgspec import MsgSpecSerializer
from faststream import ExceptionMiddleware, FastStream
from faststream.nats import NatsBroker, NatsMessage
from nats.aio.client import Client

from apportion.adapters.bus.connection import inbox_of, without_password
from apportion.adapters.bus.topology import EVENTS
from apportion.adapters.ingress.check import (
    ACCEPTED,
    INGRESS_PREFIX,
    Accepted,
    RequestRefused,
    checked,
    split_request,
)
from apportion.adapters.ingress.wire import Problem, Refused, Request, Status, Stored
from apportion.adapters.processes import ending
from apportion.core.events import EVENTS as EVENT_CLASSES
from apportion.core.events import NEWEST
from apportion.core.reasons import Refusal

logger = logging.getLogger(__name__)

STATUS_SUBJECT = "ap.status.ingress"
QUEUE = "ingress"
REST_QUEUE = "ingress-rest"  # another group: in one group the server would choose between it and the type's own handler
WORKERS = 16
ACK_TIMEOUT_S = 5.0
FINISH_S = 8.0  # at the end, for the requests in progress: one that gets no answer from the log has ended by then
END_WITHIN_S = 15.0
NOT_STORED = "not_stored"  # the log did not take it; nothing is stored
OUTCOME_UNKNOWN = "outcome_unknown"  # no answer from the log; it may be stored
INTERNAL_ERROR = "internal_error"  # a bug of the ingress, written to its log


class Ingress:
    """One ingress process. ``app`` is the FastStream application, for ``faststream run`` or ``serve``."""

    def __init__(self, url: str, *, inbox_prefix: str = "") -> None:
        self.stored = 0
        self.refused: Counter[str] = Counter()
        failures = ExceptionMiddleware()
        failures.add_handler(RequestRefused, publish=True)(self._refuse)
        failures.add_handler(Exception, publish=True)(self._apologize)
        self.broker = NatsBroker(
            url,
            name="apportion-ingress",
            serializer=MsgSpecSerializer(),
            apply_types=False,
            middlewares=[failures],
            inbox_prefix=inbox_prefix or inbox_of(url),
            max_reconnect_attempts=-1,  # the library's default gives up for good after two minutes
            pending_size=0,  # what cannot be sent now fails now, instead of being stored long after the sender gave up
            ping_interval=5,
            graceful_timeout=FINISH_S,
            logger=None,
        )
        self._kept: list[Any] = [self._handle(event_type) for event_type in ACCEPTED]  # the broker holds them weakly
        rest = self.broker.subscriber(
            f"{INGRESS_PREFIX}.*.>",
            REST_QUEUE,
            decoder=_undecoded,
            max_workers=WORKERS,
            no_reply=True,
            include_in_schema=False,
        )
        rest(self.unknown)
        status = self.broker.subscriber(STATUS_SUBJECT, QUEUE, decoder=_undecoded, title="status")
        status(self.status)
        self._kept += [rest, status]
        self.app = FastStream(self.broker, logger=None)
        self._client: Client | None = None

    def _handle(self, event_type: str) -> Any:
        event_class = EVENT_CLASSES[event_type, NEWEST[event_type]]

        async def handle(request: Any) -> Any:
            return await self.store(request)

        handle.__name__ = event_type.replace(".", "_")
        handle.__doc__ = event_class.__doc__
        handle.__annotations__ = {"request": Request[event_class], "return": Stored}  # type: ignore[valid-type]  # known at run time only
        subject = f"{INGRESS_PREFIX}.{{principal}}.{event_type}"
        subscriber = self.broker.subscriber(subject, QUEUE, decoder=_checked, max_workers=WORKERS, title=event_type)
        subscriber(handle)
        return subscriber

    # -- requests ------------------------------------------------------------------------------------------------------

    async def store(self, accepted: Accepted) -> Stored:
        """Publish the event and return where it is stored. Raises ``RequestRefused`` when it is not, or not surely."""
        client = await self.broker.connect()
        headers = {"Nats-Msg-Id": accepted.event_id}
        try:
            ack = await client.jetstream(timeout=ACK_TIMEOUT_S).publish(
                accepted.subject, accepted.body, timeout=ACK_TIMEOUT_S, stream=EVENTS, headers=headers
            )
        except nats.js.errors.NoStreamResponseError:
            raise _failed(accepted, NOT_STORED, f"the stream {EVENTS} answers; send again shortly") from None
        except nats.js.errors.APIError as error:
            raise _failed(accepted, NOT_STORED, f"the log takes it ({error.description})") from None
        except (TimeoutError, nats.errors.Error, OSError) as error:
            rule = (
                f"the log answers within {ACK_TIMEOUT_S:.0f} s ({type(error).__name__}); send again under the same id"
            )
            raise _failed(accepted, OUTCOME_UNKNOWN, rule) from None
        if ack.duplicate:
            await self._compare(client, accepted, ack.seq)
        self.stored += 1
        return Stored(seq=ack.seq, id=accepted.event_id, duplicate=bool(ack.duplicate), ignored=accepted.ignored)

    async def _compare(self, client: Client, accepted: Accepted, seq: int) -> None:
        """Refuse unless the record stored under this id is this event."""
        try:
            stored = await client.jetstream(timeout=ACK_TIMEOUT_S).get_msg(EVENTS, seq)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            rule = f"the record under this id can be read ({type(error).__name__}); send again under the same id"
            raise _failed(accepted, OUTCOME_UNKNOWN, rule) from None
        same = stored.subject == accepted.subject and _value(stored.data or b"") == _value(accepted.body)
        if not same:
            raise _failed(accepted, Refusal.DUPLICATE.value, f"an id names one event; this one was used at seq {seq}")

    async def unknown(self, message: NatsMessage) -> None:
        """Answer a request whose type has no handler; the others are answered by theirs."""
        try:
            split_request(message.raw_message.subject)
        except RequestRefused as refused:
            if message.reply_to:
                await self.broker.publish(self._refuse(refused), message.reply_to)

    async def status(self, _message: Any) -> Status:
        """Tell whether the log answers, and what was done since the start."""
        last_seq, problem = -1, ""
        try:
            client = await self.broker.connect()
            last_seq = (await client.jetstream(timeout=2.0).stream_info(EVENTS)).state.last_seq
        except (TimeoutError, nats.errors.Error, OSError) as error:
            problem = f"{EVENTS} does not answer: {type(error).__name__} {error}".strip()
        return Status(
            ok=not problem,
            version=version("apportion"),
            stored=self.stored,
            refused=dict(sorted(self.refused.items())),
            log_last_seq=last_seq,
            log_problem=problem,
        )

    # -- failures ------------------------------------------------------------------------------------------------------

    def _refuse(self, refused: RequestRefused) -> Refused:
        self.refused[refused.problem.refusal] += 1
        logger.info("refused %s: %s", refused.event_id, refused.problem.message)
        return Refused(id=refused.event_id, error=refused.problem)

    def _apologize(self, error: Exception) -> Refused:
        self.refused[INTERNAL_ERROR] += 1
        logger.error("request failed: %r", error, exc_info=error)
        problem = Problem(
            refusal=INTERNAL_ERROR,
            rule="the ingress carries requests out; its log has the error",
            message=f"the ingress failed ({type(error).__name__}); whether the event is stored is unknown",
        )
        return Refused(id="", error=problem)

    # -- life ----------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Ingress]:
        """Answer requests while the context is open."""
        await self.start()
        try:
            yield self
        finally:
            await self.close()

    async def start(self) -> None:
        """Begin to answer; waits for a server without end."""
        await self.broker.start()
        client = self._client = await self.broker.connect()
        for _ in range(2):  # its ping overtakes commands still in the client's buffer; the second one cannot
            await client.flush()

    async def close(self) -> None:
        """Finish the requests in progress and close the connection, within seconds whatever the server does."""
        try:
            await ending.within("finishing the requests in progress", self.broker.stop(), FINISH_S + ending.STEP_S)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            logger.warning("the server is away (%s): requests in progress, if any, are not answered", type(error).__name__)
        if self._client is not None and not self._client.is_closed:
            with contextlib.suppress(TimeoutError, nats.errors.Error, OSError):
                await ending.within("closing the connection", self._client.close())


async def serve(
    url: str, stop: asyncio.Event, *, inbox_prefix: str = "", ready: Callable[[str], None] | None = None
) -> None:
    """Answer requests at ``url`` until ``stop``, SIGTERM or an interrupt. Connects for good: a lost server is waited for.

    ``ready`` is told one line when requests are answered.
    """
    ingress = Ingress(url, inbox_prefix=inbox_prefix)
    try:
        with ending.on_signals("apportion ingress", stop.set, END_WITHIN_S):
            logger.info("ingress connects to %s", without_password(url))  # and may wait there for long
            if await ending.until_stopped(stop, ingress.start()) is None:
                return
            told = f"answers requests on {INGRESS_PREFIX}.<principal>.<type> and {STATUS_SUBJECT}"
            logger.info("ingress %s", told)
            if ready is not None:
                ready(told)
            await stop.wait()
    finally:
        await ingress.close()


async def _checked(message: NatsMessage) -> Accepted:
    raw = message.raw_message
    return checked(raw.subject, raw.data, secrets.token_hex(16))


async def _undecoded(message: NatsMessage) -> NatsMessage:
    return message


def _failed(accepted: Accepted, refusal: str, rule: str) -> RequestRefused:
    """Return the refusal of an event that was good; ``rule`` completes "expected that ..."."""
    message = f"the event for {accepted.subject} is not acknowledged, expected that {rule}"
    return RequestRefused(
        Problem(refusal=refusal, field="id", rule=rule, value=accepted.event_id, message=message), accepted.event_id
    )


def _value(body: bytes) -> Any:
    """Return what a body says, however it was written; fields with their defaults are the same as none."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    empty = {"at_ms": 0, "cause": "", "flow": "", "v": 1}
    return {**empty, **document} if isinstance(document, dict) else document
