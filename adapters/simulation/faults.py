"""What can happen to events between their producers and the log: copies, delays, disorder, wrong clocks, rubbish.

Decides, by seed, how an interval's events really arrive. The order of one producer's events is kept among their first
arrivals (each producer has one connection); everything else may change: events come twice or again much later, one
producer falls behind, producers interleave anew, the server's clock steps back, bodies nobody can read come between. A
pure function of seed, rates and the events; the log keeps what it returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.stated import Stated

REMEMBERED = 400


class FaultRates(NamedTuple):
    """How often, in ppm of events, unless said otherwise."""

    twice: int = 0  # the same bytes again, at once
    again: int = 0  # the same bytes again, later
    reorder: bool = False  # interleave producers anew
    late_producers: int = 0  # of producers and intervals: it falls behind
    late_ms: int = 0  # for at most so long
    clock_step_ms: int = 0  # the stored time jumps by up to so much, both ways
    rubbish: int = 0


NONE = FaultRates()
EVERYTHING_TWICE = FaultRates(twice=1_000_000)
ROUGH = FaultRates(
    twice=30_000,
    again=20_000,
    reorder=True,
    late_producers=10_000,
    late_ms=400_000,
    clock_step_ms=30_000,
    rubbish=10_000,
)

_BODIES = (
    b"",
    b"{",
    b"\xff\xfe\x00",
    b"[]",
    b"null",
    b'{"id":"x","type":"node.heartbeat"}',
    b'{"id":"x","type":"run.started","v":1,"data":{"workload":"a","run":-1,"node":"b"}}',
    b'{"id":"x","type":"run.started","v":1,"data":{"workload":"a","run":9223372036854775808,"node":"b"}}',
    b'{"id":"x","type":"run.started","v":7,"data":{}}',
    b'{"id":"x","type":"budget.granted","v":1,"data":{"pool":"h100","budget":"itp","gpu_us":1e300}}',
    b'{"id":"x","type":"workload.submitted","v":1,"data":{"workload":"a b","budget":"x","pools":[],"gpus_milli":0}}',
    b'{"id":"x","type":"log.opened","v":1,"data":{"log_id":"other","time_source":"stored"}}',
    b'{"id":"x","type":"clock.tick","v":1,"data":{"why":"due"}}',
    b'{"id":"x","type":"node.left","v":1,"data":{"node":"node001"}}',
    b'{"id":"x","type":"budget.closed","v":1,"data":{"pool":"h100","budget":"itp"}}',
    b'{"id":"x","type":"no.such.type","v":1,"data":{}}',
    b'{"id":"x","type":"node.joined","v":1,"data":{"node":"n","pool":"h100","gpus":73}}',
    b"[" * 2_000,
)
_SUBJECTS = (
    "ap.ev.stranger.run.started",
    "ap.ev.stranger.clock.tick",
    "ap.ev.stranger.node.left",
    "ap.ev.stranger.budget.granted",
    "ap.ev.stranger.budget.closed",
    "ap.ev.stranger.node.heartbeat",
    "ap.ev.stranger.log.opened",
    "ap.ev.stranger.workload.submitted",
    "ap.ev.stranger.no.such.type",
    "ap.ev.stranger.node.joined",
    "ap.ev.node001.run.started",
    "ap.ev.x.",
    "ap.ev",
    "somewhere.else",
)


class Faults:
    """A fault model with memory; call it with each interval's events."""

    def __init__(self, seed: int, rates: FaultRates) -> None:
        self._dice = Dice(seed, "faults")
        self._rates = rates
        self._past: deque[Stated] = deque(maxlen=REMEMBERED)
        self._behind: dict[str, tuple[int, list[Stated]]] = {}  # producer -> (until, events)
        self._opened = False

    def __call__(self, events: list[Stated], until_ms: int) -> list[Stated]:
        """Return what reaches the log by ``until_ms``, in order; the first call must open the log and is kept whole."""
        if not self._opened:
            self._opened = True
            return events
        arrived = self._interleave(self._delay(events, until_ms))
        return [self._clocked(event) for event in self._copy(arrived)]

    def _delay(self, events: list[Stated], until_ms: int) -> dict[str, list[Stated]]:
        """Return events by producer, without those of producers that are behind."""
        rates, by_producer = self._rates, _by_producer(events)
        for producer, (late_until_ms, kept) in list(self._behind.items()):
            kept.extend(by_producer.pop(producer, ()))
            if until_ms >= late_until_ms:
                by_producer[producer] = kept
                del self._behind[producer]
        if rates.late_producers:
            for producer in list(by_producer):
                if self._dice.chance(rates.late_producers):
                    late_until_ms = until_ms + self._dice.between(1, rates.late_ms)
                    self._behind[producer] = (late_until_ms, by_producer.pop(producer))
        return by_producer

    def _interleave(self, by_producer: dict[str, list[Stated]]) -> list[Stated]:
        merged = [event for events in by_producer.values() for event in events]
        if not self._rates.reorder:
            merged.sort(key=lambda event: event.at_ms)
            return merged
        turns = [producer for producer, events in by_producer.items() for _ in events]
        self._dice.shuffle(turns)
        queues = {producer: iter(events) for producer, events in by_producer.items()}
        return [next(queues[producer]) for producer in turns]

    def _copy(self, events: list[Stated]) -> Iterator[Stated]:
        rates, dice = self._rates, self._dice
        for event in events:
            yield event
            if rates.twice and dice.chance(rates.twice):
                yield event
            if rates.again and self._past and dice.chance(rates.again):
                old = self._past[dice.below(len(self._past))]
                yield old._replace(at_ms=event.at_ms)
            if rates.rubbish and dice.chance(rates.rubbish):
                yield Stated(event.at_ms, _SUBJECTS[dice.below(len(_SUBJECTS))], _BODIES[dice.below(len(_BODIES))])
            self._past.append(event)

    def _clocked(self, event: Stated) -> Stated:
        step_ms = self._rates.clock_step_ms
        if not step_ms:
            return event
        return event._replace(at_ms=max(0, event.at_ms + self._dice.between(-step_ms, step_ms // 8)))


def _by_producer(events: list[Stated]) -> dict[str, list[Stated]]:
    found: dict[str, list[Stated]] = {}
    for event in events:
        found.setdefault(event.subject.split(".", 3)[2], []).append(event)
    return found
