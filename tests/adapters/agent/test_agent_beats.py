"""Heartbeats of real agents: nobody can be first with one's id, and an archive needs hardly any room for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from apportion.adapters.logs.segments import events_segment, opened, read_events
from apportion.core.envelope import Record, decode_envelope
from apportion.core.events import NodeHeartbeat, encode_event

InLab = Callable[[Callable[[Any], Any]], None]

BEATS = 120


async def beats_of(lab: Any) -> list[Record]:
    """Return the heartbeats of agents as they are stored."""
    last, after, found = await lab.bus.events.last_seq(), 0, list[Record]()
    while after < last:
        records = await lab.bus.events.read(after, 1_000)
        found += [record for record in records if record.subject.startswith("ap.ev.agent-") and b'"node.heartbeat"' in record.body]
        after = records[-1].seq
    return found


def test_a_heartbeat_is_stored_whoever_has_published_its_id_before(in_lab: InLab) -> None:
    async def scenario(lab: Any) -> None:
        for beat in range(1, 40):
            event_id = f"n1.{beat}"
            body = encode_event(NodeHeartbeat(node="n1", beat=beat), event_id=event_id)
            await lab.bus.publisher.publish("ap.ev.mallory.node.heartbeat", body, event_id)
        await lab.start_agent(beat_ms=20)

        async def enough() -> bool:
            return len(await beats_of(lab)) >= 30

        await lab.until(enough, "thirty heartbeats")
        beats = [decode_envelope(record.body) for record in await beats_of(lab)]
        assert [beat.id for beat in beats] == [f"n1.{number}" for number in range(1, len(beats) + 1)]

    in_lab(scenario)


def test_an_archive_takes_a_few_bytes_for_a_heartbeat_and_none_for_its_id(in_lab: InLab, tmp_path: Path) -> None:
    async def scenario(lab: Any) -> None:
        for node in ("n1", "n2"):
            await lab.start_agent(node, beat_ms=20)
        await lab.run_now("w", ["sleep", "60"], 0, 1)

        async def enough() -> bool:
            return len(await beats_of(lab)) >= BEATS

        await lab.until(enough, f"{BEATS} heartbeats")
        records = [record._replace(seq=seq) for seq, record in enumerate(await beats_of(lab), 1)]
        path = tmp_path / "beats.seg"
        path.write_bytes(events_segment("2026-01-01", "", records))
        segment = opened(path, "events", 1, "")
        sizes = {section.name: section for section in segment.header.sections}

        assert read_events(segment) == records
        assert (sizes["ids"].raw_size, sizes["bodies"].raw_size) == (0, 0), "every one is in the one spelling, and its id is known"
        # Two bytes for when it came and two for when it was said, if both jitter by seconds; the rest is as expected.
        assert sum(section.size for section in sizes.values()) < 5 * len(records)

    in_lab(scenario)
