"""From a published event to the core's decision in words.

``send`` publishes and waits until the projection holds the cycle that answers the event; the first batch at or after
the event's sequence is that answer. A refused event appears there as a decision with its reason; an accepted one has
changed the state, and the decisions that name it tell what happened. Words come from ``adapters.wording`` alone.
"""

from __future__ import annotations

import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from apportion.adapters import render
from apportion.adapters.cli.asking import Opened, Reply
from apportion.adapters.cli.failure import FAILED, Failure, unreachable
from apportion.adapters.cli.output import Answer, AsOf, write_lines
from apportion.adapters.cli.publishing import event_document, now_ms
from apportion.adapters.cli.verbs import WritePlace
from apportion.adapters.wording import words_of

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

    @property
    def refusal(self) -> dict[str, Any] | None:
        """The decision that refused the event, or None."""
        for decision in self.decisions:
            if decision["type"] in ("rejected", "workload.rejected"):
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
        told = [line for decision in self.decisions for line in decision_lines(subject, decision)]
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
            what, do = refusal_words(refusal)
            raise Failure(FAILED, f"{subject}: refused: {what}", do, decision=refusal, event_seq=self.seq)
        code = 0 if self.decided or self.detached else FAILED
        return Answer(lines=self.lines(subject), document=document, as_of=self.as_of, code=code)

    def tell(self, subject: str) -> None:
        """Print the outcome to stderr, before something else is printed. Raises ``Failure`` when refused."""
        answer = self.answer(subject)
        write_lines(sys.stderr, answer.lines, None)


def refusal_words(decision: dict[str, Any]) -> tuple[str, str]:
    """Return ``(sentence, action)`` of a refusing decision."""
    numbers = {name: value for name, value in decision.items() if isinstance(value, (int, str)) and name != "reason"}
    numbers.update(decision.get("numbers") or {})
    sentence, action = words_of("refusal", str(decision["reason"]), numbers)
    if decision.get("field") and decision["field"] not in sentence:
        sentence += f" (field {render.clean(str(decision['field']))})"
    return sentence, action


def decision_lines(subject: str, decision: dict[str, Any]) -> list[str]:
    """Return one decision in sentences; the first names the subject."""
    kind = decision["type"]
    if kind == "workload.admitted":
        nodes = decision["nodes"]
        shape = render.gpus(decision["milli_per_node"] * nodes) + (f" on {nodes} nodes" if nodes > 1 else "")
        protected = decision.get("min_runtime_ms", 0)
        until = f", protected for {render.duration(protected)} once it runs" if protected else ", on idle GPUs only"
        return [f"{subject}: admitted to {decision['budget']} in pool {decision['pool']}: {shape}{until}"]
    if kind == "run.placed":
        pieces = ", ".join(_piece(piece) for piece in decision["pieces"])
        why, action = words_of("funding", decision["why"], decision)
        payer, _action = words_of("payer", decision["payer"])
        lines = [f"{subject}: placed as run {decision['run']} on {pieces}", f"  {payer}: {why}"]
        if decision.get("protected_until_ms"):
            lines.append(f"  not interrupted before {render.when(decision['protected_until_ms'])}")
        return lines + ([f"  to change that: {action}"] if action and decision["payer"] == "unfunded" else [])
    if kind == "pending.explained":
        why, action = words_of("pending", decision["reason"], decision.get("numbers") or {})
        return [f"{subject}: waits: {why}"] + ([f"  what helps: {action}"] if action else [])
    if kind == "gpus.reserved":
        return [f"{subject}: GPUs are held for it on {', '.join(_piece(piece) for piece in decision['pieces'])}"]
    if kind == "run.preempted":
        certificate = decision["certificate"]
        return [
            f"{subject}: run {decision['run']} makes room for {certificate['beneficiary']} "
            f"of {certificate['beneficiary_budget']}; it has until {render.when(decision['grace_until_ms'])}"
        ]
    if kind == "run.cancelled":
        return [
            f"{subject}: cancelled; run {decision['run']} was sent SIGTERM and has until "
            f"{render.when(decision['grace_until_ms'])}"
        ]
    if kind == "run.closed":
        return [f"{subject}: {closed_words(decision)}"]
    if kind == "workload.closed":
        sentence, _action = words_of("outcome", decision["outcome"], {})
        return [f"{subject}: over: {sentence} (runs: {decision['runs']})"]
    if kind == "funding.changed":
        why, _action = words_of("funding", decision["why"], decision)
        payer = "its budget pays" if decision["payer"] == "budget" else "unfunded"
        return [f"{subject}: run {decision['run']} is now {payer}: {why}"]
    if kind == "node.suspended":
        why, action = words_of("node", decision["reason"], decision.get("numbers") or {})
        return [f"node {decision['node']}: suspended: {why}", f"  what helps: {action}"]
    if kind in ("rejected", "workload.rejected"):
        what, do = refusal_words(decision)
        return [f"{subject}: refused: {what}"] + ([f"  what helps: {do}"] if do else [])
    return [f"{subject}: {kind} {render.cell('', decision)}"]


def closed_words(decision: dict[str, Any]) -> str:
    """Return the final account of a run in one sentence."""
    ran_ms = decision["end_ms"] - decision["placed_ms"]
    sentence, _action = words_of("outcome", decision["outcome"], {**decision, "ran_ms": ran_ms})
    paid = [f"{render.gpu_hours(decision['charged_gpu_us'])} GPU-h charged to {decision['budget']}"]
    if decision["unfunded_gpu_us"]:
        paid.append(f"{render.gpu_hours(decision['unfunded_gpu_us'])} GPU-h unfunded")
    refunded = decision.get("refunded_gpu_us", 0) + decision.get("unfunded_refunded_gpu_us", 0)
    if refunded:
        paid.append(f"{render.gpu_hours(refunded)} GPU-h given back")
    if decision.get("requeued"):
        paid.append("it is queued again")
    return f"run {decision['run']} ended: {sentence}; {', '.join(paid)}"


def _piece(piece: Any) -> str:
    node, gpus, milli_each = (
        (piece["node"], piece["gpus"], piece["milli_each"])
        if isinstance(piece, dict)
        else (piece[0], piece[1], piece[2])
    )
    each = "" if milli_each == 1000 else f" ({render.gpus(milli_each)} of it)"
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    return f"{node} {noun} {_spans(list(gpus))}{each}"


def _spans(numbers: list[int]) -> str:
    """Return ``0-3,6`` for 0, 1, 2, 3, 6."""
    parts: list[str] = []
    start = previous = None
    for number in [*sorted(numbers), None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ",".join(parts)


async def send(source: Opened, place: WritePlace, event: Event, *, workload: str = "") -> Outcome:
    """Publish the event and wait for its decision. Raises ``Failure`` (3) when the log cannot be reached."""
    import asyncio

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
        ack = await asyncio.wait_for(
            publisher.publish(subject_of(place.principal, event_type), body, event_id), place.timeout_ms / 1000
        )
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
    return await outcome_of(source, ack.seq, event_type, place.timeout_ms, workload=workload)


async def outcome_of(source: Opened, seq: int, event_type: str, timeout_ms: int, *, workload: str = "") -> Outcome:
    """Wait for the cycle that answers record ``seq`` and return what it decided about it."""
    import asyncio

    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        reply = await source.ask("decision_of", event_seq=seq, workload=workload, wait_ms=min(left_ms, 10_000))
        decided = bool(reply.more.get("decided"))
        if decided or time.monotonic() >= deadline:
            decisions = [dict(row.get("detail") or row) for row in reply.rows] if decided else []
            return Outcome(seq, event_type, decided, decisions, reply.as_of)
        await asyncio.sleep(0.02)


async def known_of(source: Opened, place: WritePlace, event: Event, **about: Any) -> Answer:
    """Return the dry run: the event, and what is known now about what it touches."""
    document = event_document(place, event)
    lines = [f"would publish {document['type']} as {place.principal} (nothing was sent)"]
    lines += [f"  {name}: {_value(name, value)}" for name, value in document["data"].items()]
    known: dict[str, Any] = {}
    as_of = None
    if about.get("budget"):
        reply = await source.ask("budgets")
        rows = [row for row in reply.rows if row["budget"] == about["budget"]]
        known["budget"], as_of = rows, reply.as_of
        for row in rows:
            lines.append(_budget_line(row))
    if about.get("pools"):
        reply = await source.ask("pools")
        known["pools"] = [row for row in reply.rows if row["pool"] in about["pools"]]
        as_of = reply.as_of
        for row in known["pools"]:
            lines.append(
                f"pool {row['pool']}: {render.gpus(row['free_milli'])} free, {render.gpus(row['pending_milli'])} asked for"
            )
    if about.get("workload"):
        reply = await source.ask("workload", job=about["workload"])
        known["workload"], as_of = reply.rows, reply.as_of
        for row in reply.rows[:1]:
            lines.append(f"workload {row['workload']}: {row['state']}")
    return Answer(lines=lines, document={"dry_run": True, "event": document, "known": known}, as_of=as_of)


def _value(name: str, value: Any) -> str:
    if name == "command":
        import shlex

        return render.clean(shlex.join(value))
    if isinstance(value, list):
        return ", ".join(render.clean(str(part)) for part in value)
    if name == "env":
        return ", ".join(f"{key}={render.clean(text)}" for key, text in value.items())
    return render.cell(name, value)


def _budget_line(row: dict[str, Any]) -> str:
    return f"budget {row['budget']} in pool {row['pool']}"


async def follow(source: Opened, place: WritePlace, workload: str) -> Answer:
    """Tell each change of the workload on stderr until it is over; the exit code is that of its last run."""
    import asyncio

    told = 0
    while True:
        reply = await source.ask("job", job=workload)
        told = _tell_new(reply, told, workload, quiet=place.as_json)
        over = await source.ask("workload", job=workload)
        row = over.first
        if row is not None and row.get("outcome"):
            code = int(row.get("exit_code") or 0)
            if row["outcome"] != "succeeded" and code == 0:
                code = FAILED
            return Answer(document={"workload": workload, **row}, as_of=over.as_of, code=code % 256)
        await asyncio.sleep(FOLLOW_EVERY_S)


def _tell_new(reply: Reply, told: int, workload: str, *, quiet: bool) -> int:
    return told
