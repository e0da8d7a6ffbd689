"""The forecaster as a process: reads the projection, fits what is old, publishes what is worth an event, waits, begins again.

Every round is as of the projection's own time: this process never asks a clock what time it is for a forecast. At most
``RATE`` events a second are published, and none of a target of which the core has refused one as not permitted. A round ends when
the next is due; what it had not published comes then. SIGTERM ends it between two events; a fit that is under way is given up.
It must never decide anything: what it says is an event that the core checks like any other.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.publisher import Publisher
from apportion.adapters.forecasting import publishing, traffic
from apportion.adapters.forecasting.features import features
from apportion.adapters.forecasting.history import History, history_of
from apportion.adapters.forecasting.publishing import STEP_MS, STEPS, Said
from apportion.adapters.forecasting.shelf import Shelf
from apportion.adapters.processes import ending
from apportion.adapters.projector.asking import ask
from apportion.adapters.text import render
from apportion.core.envelope import subject_of
from apportion.core.errors import ApportionError
from apportion.core.events import EVENT_TYPES, ForecastPublished, encode_event
from apportion.core.units import MS_PER_DAY

NAME = "apportion forecast"
RATE = 20  # events a second
HISTORY_DAYS = 180
ASK_TIMEOUT_S = 60.0
ACK_TIMEOUT_S = 30.0
ANSWER_MS = 3_000  # for the core to refuse; what it takes may have no cycle for long
END_WITHIN_S = 10.0


class NotAnswered(ApportionError):
    """The projector did not answer as asked."""


class Ended(ApportionError):
    """It was told to end while it was fitting."""


class NotPermitted(ApportionError):
    """All that was published was refused: this principal may not forecast."""


@dataclass
class Round:
    """What one round came to."""

    as_of_seq: int = 0
    as_of_ms: int = 0
    runtimes: int = 0
    traffic: int = 0
    unchanged: int = 0
    left: int = 0  # for the next round
    models: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # services of which nothing is said, traffic left out
    refused: dict[str, int] = field(default_factory=dict)  # by reason

    def line(self) -> str:
        """Return it in one line."""
        runtimes, services = render.many(self.runtimes, "runtime"), render.many(self.traffic, "service")
        parts = [f"seq {self.as_of_seq:,}: {runtimes} and {services} forecast"]
        parts.append(f"{self.unchanged:,} as they were said")
        parts += [f"{self.left:,} left for the next round"] if self.left else []
        parts += [f"{count:,} refused: {reason}" for reason, count in self.refused.items()]
        return "; ".join((", ".join(parts), *self.notes))


class Forecaster:
    """One process at one server."""

    def __init__(
        self, connection: Connection, publisher: Publisher, principal: str, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self.stopping = asyncio.Event()
        self._connection = connection
        self._publisher = publisher
        self._principal = principal
        self._shelf = Shelf(folder, tell, self._go_on)
        self._denied: set[str] = set()

    def _go_on(self) -> None:
        """Raise when it is told to end; asked before each fit, in the thread that fits."""
        if self.stopping.is_set():
            raise Ended

    async def round(self, until_s: float) -> Round:
        """Publish what is due, until the loop's clock says ``until_s``. Raises ``NotPermitted`` when all of it is refused."""
        since = await self._ask("pools")
        now_ms = since["as_of"]["time_ms"]
        done = Round(since["as_of"]["seq"], now_ms)
        since_ms = max(0, now_ms - HISTORY_DAYS * MS_PER_DAY)
        history = history_of((await self._ask("forecast_workloads", since_ms=since_ms))["rows"])
        due = await self._services(now_ms, done)
        done.traffic = len(due)
        work = await asyncio.to_thread(self._runtimes, history, now_ms, done)
        done.runtimes = len(work)
        due = [event for event in (*due, *work) if event.target not in self._denied]
        first_seq, published = await self._publish(due, until_s)
        done.left = len(due) - published
        if published:
            await self._look_at_answers(first_seq, published, history, done)
        return done

    def _runtimes(self, history: History, now_ms: int, done: Round) -> list[ForecastPublished]:
        """Return what is due about work; takes a processor for seconds when models are fitted."""
        table = features(history.asked)
        models = self._shelf.models(history.asked, table, now_ms)
        due = publishing.runtimes_due(models, history, table)
        done.models += [model.model_id for model in models.values()]
        done.unchanged += due.unchanged
        return due.events

    async def _services(self, now_ms: int, done: Round) -> list[ForecastPublished]:
        since_ms = max(0, now_ms - (traffic.HISTORY_DAYS + 1) * MS_PER_DAY)
        rows = (await self._ask("forecast_traffic", step_ms=STEP_MS, since_ms=since_ms))["rows"]
        said = said_of((await self._ask("forecast_said"))["rows"])
        by_service: dict[str, dict[int, int]] = {row["workload"]: {} for row in (await self._ask("services"))["rows"]}
        for row in rows:
            by_service.setdefault(row["workload"], {})[row["from_ms"]] = row["traffic_milli"]
        due = []
        for service, steps in by_service.items():
            seen = traffic.seen_of(steps, STEP_MS, now_ms)
            if seen.absurd:
                done.notes.append(f"{service}: {render.many(seen.absurd, 'step')} of absurd traffic left out")
            ahead = traffic.forecast(traffic.fit(seen, now_ms), seen, now_ms, STEPS)
            if ahead is None:
                why = "no traffic was seen for two hours" if steps else "no half hour with traffic is over"
                done.notes.append(f"{service}: {why}, so nothing is said")
                continue
            done.models.append(ahead.model)
            event = publishing.traffic_event(service, ahead)
            if publishing.worth_saying(event, said.get(service)):
                due.append(event)
            else:
                done.unchanged += 1
        return due

    async def _publish(self, events: Iterable[ForecastPublished], until_s: float) -> tuple[int, int]:
        """Publish one after the other; returns the first sequence, and how many there were."""
        loop = asyncio.get_running_loop()
        first_seq, count = 0, 0
        for event in events:
            if self.stopping.is_set() or loop.time() >= until_s:
                break
            event_id = secrets.token_hex(16)
            event_type = EVENT_TYPES[type(event)]
            body = encode_event(event, event_id=event_id, at_ms=time.time_ns() // 1_000_000)  # the log assigns the time of record
            async with asyncio.timeout(ACK_TIMEOUT_S):
                ack = await self._publisher.publish(subject_of(self._principal, event_type), body, event_id)
            first_seq, count = first_seq or ack.seq, count + 1
            await asyncio.sleep(1.0 / RATE)
        return first_seq, count

    async def _look_at_answers(self, first_seq: int, published: int, history: History, done: Round) -> None:
        """Note what the core has refused of it."""
        await self._ask("wait", seq=first_seq + published - 1, timeout_ms=ANSWER_MS)
        answer = await self._ask("rejections", after_seq=first_seq - 1, principal=self._principal, row_limit=10_000)
        rows = [row for row in answer["rows"] if row["event_type"] == "forecast.published"]
        for row in rows:
            done.refused[row["reason"]] = done.refused.get(row["reason"], 0) + 1
        denied = [row["entity"] for row in rows if row["reason"] == "not_permitted"]
        self._denied.update(denied)
        if denied:
            roots = sorted({one.budget.partition("/")[0] for one in history.asked}) or ["BUDGET"]
            commands = "; ".join(f"apportion member grant {root} {self._principal} --role administer" for root in roots)
            what = f"{self._principal} may not forecast for {len(denied):,} of {published:,} targets: that is for operators and "
            what += f"who administers their budget. An operator lets it: {commands}"
            if len(denied) >= published:
                raise NotPermitted(what)
            done.notes.append(what)

    async def _ask(self, name: str, **params: Any) -> dict[str, Any]:
        document = await ask(self._connection.client, name, params, timeout_s=ASK_TIMEOUT_S)
        if (error := document.get("error")) is not None:
            raise NotAnswered(f"{name}: {error.get('what', 'the projector refused')}; {error.get('do', '')}".rstrip("; "))
        return document


def said_of(rows: Iterable[dict[str, Any]]) -> dict[str, Said]:
    """Return what was last said of each service, from the rows of ``forecast_said``."""
    found: dict[str, Said] = {}
    for row in rows:
        before = found.setdefault(row["workload"], Said({}, 0))
        before.values[row["quantile_ppm"], row["from_ms"]] = row["traffic_milli"]
        found[row["workload"]] = before._replace(until_ms=max(before.until_ms, row["until_ms"]))
    return found


async def serve(
    url: str, folder: Path, principal: str, *, every_s: float, once: bool, tell: Callable[[str], None]
) -> Round:
    """Forecast until a signal comes, or one round with ``once``; returns the last round.

    Raises ``ApportionError`` for what a person must look at. With ``once`` also when the projector does not answer; else that
    round is told of and left out.
    """
    done = Round()
    async with await Connection.open(url, name=NAME) as connection:
        publisher = await Publisher.open(connection)
        forecaster = Forecaster(connection, publisher, principal, folder, tell)
        loop = asyncio.get_running_loop()
        try:
            with ending.on_signals(NAME, forecaster.stopping.set, END_WITHIN_S):
                while not forecaster.stopping.is_set():
                    begin_s = loop.time()
                    task = await ending.until_stopped(forecaster.stopping, _tried(forecaster, begin_s + every_s, tell, once))
                    if task is None:
                        break
                    done = task.result() or done
                    if once:
                        break
                    left_s = begin_s + every_s - loop.time()
                    await ending.until_stopped(forecaster.stopping, asyncio.sleep(max(left_s, 0.0)))
        finally:
            await ending.within("closing the publisher", publisher.close())
    return done


async def _tried(forecaster: Forecaster, until_s: float, tell: Callable[[str], None], once: bool) -> Round | None:
    try:
        done = await forecaster.round(until_s)
    except NotPermitted:
        raise
    except (ApportionError, TimeoutError) as error:
        if once:
            raise
        tell(f"this round is left out: {error or 'the log did not confirm an event in time'}")
        return None
    tell(done.line())
    return done
