"""From a published event to the core's decision in words.

``send`` publishes and waits until the projection holds the cycle that answers the event; the first batch at or after
the event's sequence is that answer. A refused event appears there as a decision with its reason; an accepted one has
changed the state, and the decisions that name it tell what happened. Words come from ``adapters.text.wording`` alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apportion.adapters.cli.asking import Opened
from apportion.adapters.cli.failure import FAILED, Failure, unreachable
from apportion.adapters.cli.output import Answer, AsOf, write_lines
from apportion.adapters.cli.publishing import event_document, now_ms
from apportion.adapters.cli.telling import REFUSING, decision_lines, named_in, refusal_words
from apportion.adapters.cli.verbs import WritePlace
from apportion.adapters.text import render

if TYPE_CHECKING:
    from apportion.core.events import Event

FOLLOW_EVERY_S = 0.5


@dataclass
class Outcome:
    """What became of one event."""

    seq: int
    event_type: str
    decided: bool
    decisions: list[dict[str, Any]] = field(default_factory=list)
    as_of: AsOf | None = None
    detached: bool = False
    options: Mapping[str, str] = field(default_factory=dict)  # of the verb, by field of the event
    named: Mapping[str, str] = field(default_factory=dict)  # what the event names, by its field

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The decision that refused the event, or None."""
        for decision in self.decisions:
            if decision["type"] in REFUSING:
                return decision
        return None

    def lines(self, subject: str) -> list[str]:
        """Return the decision in sentences."""
        if self.detached:
            return [f"{subject}: {self.event_type} is in the log as seq {self.seq:,}; its decision was not awaited"]
        if not self.decided:
            return [
                f"{subject}: {self.event_type} is in the log as seq {self.seq:,}, but no cycle has answered it yet",
                f"  look again with `apportion events show {self.seq}`; `apportion doctor` tells whether a core runs",
            ]
        told = [line for decision in self.decisions for line in decision_lines(str(decision.get("workload") or subject), decision)]
        return told or [f"{subject}: accepted (seq {self.seq:,})"]

    def answer(self, subject: str, **more: Any) -> Answer:
        """Return the outcome as a command's answer; refused exits with 1."""
        refusal = self.refusal
        document = {
            **more,
            "event_seq": self.seq,
            "event_type": self.event_type,
            "decided": self.decided,
            "accepted": None if not self.decided else refusal is None,
            "decisions": self.decisions,
            **({"as_of": self.as_of.document()} if self.as_of else {}),
        }
        if refusal is not None:
            what, do = refusal_words(refusal, self.options, self.named)
            raise Failure(FAILED, f"{subject}: refused: {what}", do, decision=refusal, event_seq=self.seq)
        code = 0 if self.decided or self.detached else FAILED
        return Answer(lines=self.lines(subject), document=document, as_of=self.as_of, code=code)


async def send(
    source: Opened, place: WritePlace, event: Event, options: Mapping[str, str], *, workload: str = ""
) -> Outcome:
    """Publish the event and wait for its decision. Raises ``Failure`` (3) when the log cannot be reached.

    ``options`` names the option behind each field of the event, for the words of a refusal.
    """
    import asyncio
    import secrets

    from apportion.adapters.bus.publisher import OutcomeUnknown, Publisher, PublishRefused
    from apportion.core.envelope import subject_of
    from apportion.core.events import EVENT_TYPES, encode_event

    if source.connection is None:
        raise unreachable(f"no server runs for {place.home.root}", "`apportion up` starts one; reads work without it")
    event_type = EVENT_TYPES[type(event)]
    event_id = secrets.token_hex(16)
    body = encode_event(event, event_id=event_id, at_ms=now_ms())
    publisher = await Publisher.open(source.connection)
    try:
        async with asyncio.timeout(place.timeout_ms / 1000):
            ack = await publisher.publish(subject_of(place.principal, event_type), body, event_id)
    except TimeoutError:
        raise unreachable(
            f"{event_type}: the log did not confirm it within {render.duration(place.timeout_ms)}",
            "it may be stored all the same: look with `apportion events tail` before sending it again",
        ) from None
    except (PublishRefused, OutcomeUnknown) as error:
        raise unreachable(str(error), "`apportion doctor` checks the server and its streams") from None
    finally:
        await publisher.close()
    if place.detach:
        return Outcome(ack.seq, event_type, decided=False, detached=True)
    outcome = await outcome_of(source, ack.seq, event_type, place.timeout_ms, workload=workload)
    outcome.options, outcome.named = options, named_in(event)
    return outcome


async def outcome_of(source: Opened, seq: int, event_type: str, timeout_ms: int, *, workload: str = "") -> Outcome:
    """Wait for the cycle that answers record ``seq`` and return what it decided about it, and about ``workload``."""
    if not await source.wait(seq, timeout_ms):
        return Outcome(seq, event_type, decided=False)
    reply = await source.ask("decision_of", event_seq=seq)
    decisions = [decision_of(row) for row in reply.rows if row["type"] != "accepted"]
    refused = any(decision["type"] in REFUSING for decision in decisions)
    if workload and reply.rows and not refused:
        cycle = await source.ask("decisions", cycle_seq=reply.rows[-1]["seq"], workload=workload)
        known = {(row["seq"], row["position"]) for row in reply.rows}
        decisions += [decision_of(row) for row in cycle.rows if (row["seq"], row["position"]) not in known]
    return Outcome(seq, event_type, bool(reply.rows), decisions, reply.as_of)


def decision_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a decision as it stands in its batch, with the batch's time."""
    return {"type": row["type"], "time_ms": row["time_ms"], **(row["body"] if isinstance(row["body"], dict) else {})}


async def written(
    source: Opened, place: WritePlace, event: Event, options: Mapping[str, str], subject: str, about: Mapping[str, Any],
    **named: Any,
) -> Answer:  # fmt: skip
    """Publish the event and return what was decided of ``subject``; for a dry run what is known now, and nothing is published.

    ``about`` is what the event touches; it stands in the answer's document, or what is ``named`` does in its place.
    """
    if place.dry_run:
        return await known_of(source, place, event, **about)
    outcome = await send(source, place, event, options, workload=about.get("workload", ""))
    return outcome.answer(subject=subject, **(named or about))


async def known_of(source: Opened, place: WritePlace, event: Event, **about: Any) -> Answer:
    """Return the dry run: the event, and what is known now about what it touches. Nothing is decided by it."""
    document = event_document(place, event)
    lines = [f"would publish {document['type']} as {place.principal}; nothing was sent"]
    lines += [f"  {render.heading(name)}: {_value(name, value)}" for name, value in document["data"].items()]
    known: dict[str, Any] = {}
    as_of = None
    if about.get("budget"):
        reply = await source.ask("budgets")
        known["budget"], as_of = [row for row in reply.rows if row["budget"] == about["budget"]], reply.as_of
        lines += [_budget_line(row) for row in known["budget"]] or [f"budget {about['budget']} does not exist yet"]
    if about.get("pools"):
        reply = await source.ask("status")
        known["pools"], as_of = [row for row in reply.rows if row["pool"] in about["pools"]], reply.as_of
        lines += [
            f"pool {row['pool']}: {render.gpu_count(row['idle_milli'])} of {render.gpus(row['installed_milli'])} free; "
            + (
                f"{render.many(row['pending_count'], 'waits', 'wait')} for {render.gpus(row['pending_milli'])}"
                if row["pending_count"]
                else "nothing waits"
            )
            for row in known["pools"]
        ]
    if about.get("workload"):
        reply = await source.ask("workload", workload=about["workload"])
        known["workload"], as_of = reply.rows[:1], reply.as_of
        lines += [f"{row['workload']} is {row['state']}" for row in known["workload"]]
    if about.get("node"):
        reply = await source.ask("nodes", node=about["node"])
        known["node"], as_of = reply.rows, reply.as_of
        lines += [f"node {row['node']} is {row['state']}, with {render.many(len(row['runs']), 'run')}" for row in reply.rows]
    return Answer(lines=lines, document={"dry_run": True, "event": document, "known": known}, as_of=as_of)


def _value(name: str, value: Any) -> str:
    if name == "command":
        import shlex

        return render.clean(shlex.join(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(render.clean(str(part)) for part in value)
    if name == "env":
        return ", ".join(f"{key}={render.clean(text)}" for key, text in value.items())
    return render.cell(name, value)


def _budget_line(row: dict[str, Any]) -> str:
    left = f"{render.gpu_hours(row['left_gpu_us'])} GPU-h left" if row["metered"] else "not metered"
    closed = ", closed" if row["closed"] else ""
    return (
        f"budget {row['budget']} in pool {row['pool']}: entitled to {render.percent(row['entitled_ppm'])} of its time, "
        f"{left}; {render.gpus(row['running_milli'])} running, {render.gpus(row['pending_milli'])} waiting{closed}"
    )


async def follow(source: Opened, place: WritePlace, workload: str) -> Answer:
    """Tell each change of the workload on stderr until it is over; the exit code is that of its last run."""
    import asyncio

    told: set[tuple[int, int]] = set()
    while True:
        reply = await source.ask("decisions", workload=workload)
        for row in reply.rows:
            if (row["seq"], row["position"]) not in told:
                told.add((row["seq"], row["position"]))
                if not place.as_json:
                    write_lines(sys.stderr, decision_lines(workload, decision_of(row)), None)
        ends = [row for row in reply.rows if row["type"] == "workload.closed"]
        if ends:
            last = next((decision_of(row) for row in reversed(reply.rows) if row["type"] == "run.closed"), {})
            outcome = decision_of(ends[-1])["outcome"]
            code = int(last.get("exit_code", 0)) % 256 or (0 if outcome == "succeeded" else FAILED)
            document = {"workload": workload, "outcome": outcome, "exit_code": last.get("exit_code", 0),
                        "decisions": [decision_of(row) for row in reply.rows]}  # fmt: skip
            return Answer(document=document, as_of=reply.as_of, code=code)
        await asyncio.sleep(FOLLOW_EVERY_S)
