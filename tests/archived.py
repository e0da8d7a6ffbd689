"""An archive of any two logs, as its files are: for logs that no core would read, such as those of the contract tests."""

from __future__ import annotations

from pathlib import Path

from apportion.adapters.logs.manifest import DayEntry, Manifest, day_text, load
from apportion.adapters.logs.parts import DayParts, chain_end
from apportion.core.ports import DecisionLog, EventLog


async def export(event_log: EventLog, decision_log: DecisionLog, directory: Path) -> tuple[int, int]:
    """Add what ``directory`` has not yet as one more day; returns the last sequences."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest = load(directory)
    last = manifest.days[-1] if manifest.days else None
    after_seq, after_decision = (last.last_seq, last.last_decision) if last else (0, 0)
    day = day_text(20_000 + len(manifest.days))
    events = DayParts(directory, "events", day, chain_end(manifest, "events"))
    decisions = DayParts(directory, "decisions", day, chain_end(manifest, "decisions"))
    seq, decision_seq = after_seq, after_decision
    while records := await event_log.read(seq, 30):
        events.add(records)
        seq = records[-1].seq
    while batches := await decision_log.read(decision_seq, 30):
        decisions.add(batches)
        decision_seq = batches[-1].seq
    if seq > after_seq or decision_seq > after_decision:
        files = events.finish(), decisions.finish()
        entry = DayEntry(
            day=day, sealed=True, first_seq=after_seq + 1, last_seq=max(seq, after_seq + 1), last_ms=0, stated=False,
            cycles=decisions.count, last_decision=decision_seq, events=files[0], decisions=files[1],
        )  # fmt: skip
        Manifest(days=(*manifest.days, entry)).save(directory)
    return seq, decision_seq
