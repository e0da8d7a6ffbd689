"""As columns or as records: what comes before a tick is folded the same way, in the same order, so both decide the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from apportion.adapters.simulation.stated import OPERATOR, stated
from apportion.adapters.whatif import change
from apportion.adapters.whatif.beats import Beats, Cursor
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.playing import OWN, Change, Play
from apportion.core.decisions import CycleBatch
from apportion.core.engine import Core
from apportion.core.events import NodeCordoned
from apportion.core.state.digest import digest
from tests.whatif.past import Past, past_of, played_logs
from tests.whatif.test_nothing_changed import PASTS


def without_nodes(past: Past) -> Change:
    core = past.core()
    joining = [change.Joining("h100", 2, 4, core.time_ms + 1_800_000)]
    return change.cluster(core, past.history, joining, [next(iter(core.state.node.row_of))])


def with_events_at_heartbeats(past: Past) -> Change:
    """Events of one instant with a heartbeat: the change's come first."""
    at_ms, node = past.history.beats._time_ms[40], next(iter(past.core().state.node.row_of))
    return Change((stated(at_ms, OPERATOR, NodeCordoned(node=node, reason="test"), "what-if.cordon"),))


CHANGES: tuple[Callable[[Past], Change], ...] = (
    lambda past: change.policy(past.core(), past.history, "h100", {"policy": "fifo"}), without_nodes, with_events_at_heartbeats
)  # fmt: skip


def played(past: Past, changed: Change, *, kept: bool) -> tuple[list[tuple[object, ...]], Core]:
    batches: list[CycleBatch] = []
    keep = (lambda _records, _batch: None) if kept else None
    done = Play(past.history, Needs(past.history.recorder), changed, batches.append, keep, told=True).run()
    return [(batch.seq, batch.time_ms, list(batch.decisions), batch.books) for batch in batches], done.core


@pytest.mark.parametrize("changed", CHANGES, ids=["policy", "nodes", "instants"])
@pytest.mark.parametrize("setting", PASTS, ids=lambda setting: f"seed{setting.seed}")
def test_columns_decide_what_records_decide(setting: object, changed: Callable[[Past], Change]) -> None:
    past = past_of(played_logs(setting), 0.2)  # type: ignore[arg-type]  # a setting
    columns, one = played(past, changed(past), kept=False)
    records, other = played(past, changed(past), kept=True)

    assert columns == records
    for core in (one, other):
        core.state.chain = b""
        core.state.unchained.clear()
    assert digest(one.state) == digest(other.state)


def test_what_is_of_one_instant_is_folded_in_the_order_of_the_log() -> None:
    beats = Beats()
    for seq, at_ms in ((3, 10), (5, 20), (6, 20), (9, 20), (11, 30)):
        beats.add(seq, at_ms, "ap.ev.a.node.heartbeat", "a", seq)
    cursor = Cursor(beats)
    taken = cursor.take(20)

    named = ((5, 0, 1), (20, OWN, 1), (20, 0, 7), (20, 1, 1), (25, 0, 10))
    items = [(at_ms, kind, number, "", b"") for at_ms, kind, number in named]

    assert (taken.start, taken.stop) == (0, 4)
    assert cursor.before(taken, items).tolist() == [0, 1, 3, 4, 4]
    merged = sorted([*cursor.items(taken), *items])
    assert [merged.index(item) for item in items] == [place + before for place, before in enumerate([0, 1, 3, 4, 4])]
