"""The plan of a drain is what then happens: made by the deciding function, on a copy that nobody keeps."""

from __future__ import annotations

from apportion.adapters.seen import emptying
from apportion.core import events as ev
from apportion.core.decisions import RunDrained
from apportion.core.engine import Core
from tests.core.story import OPERATOR, Story

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def busy() -> Story:
    """Return a story with one node of 8: a funded run, one that states an end in half an hour, one on idle cycles that saves."""
    story = Story()
    story.open()
    story.tell(ev.PoolDefined(pool="p"))
    story.tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
    story.tell(ev.NodeJoined(node="n1", pool="p", gpus=8, agent="n1"))
    wishes = {"paid": {}, "ends": {"expected_runtime_ms": 30 * MINUTE_MS}, "loose": {"min_runtime_ms": 0}}
    for name, wish in wishes.items():
        story.tell(ev.WorkloadSubmitted(workload=name, budget="A", pools=("p",), gpus_milli=2_000, **wish))  # type: ignore[arg-type]  # numbers
    story.tick()
    for name in wishes:
        story.tell(ev.RunStarted(workload=name, run=1, node="n1"), "n1")
    return story


def imagined(story: Story, *, by_ms: int, force: bool = False, principal: str = OPERATOR) -> tuple[Core, str]:
    core = Core.from_snapshot(story.core.snapshot())
    order = ev.NodeDrained(node="n1", by_ms=by_ms, force=force)
    return core, emptying.imagine(core, order, principal, story.now_ms)


def becomes(core: Core) -> dict[str, str]:
    return {row["workload"]: row["becomes"] for row in emptying.plan(core, "n1")}


def test_who_is_left_moved_stopped_and_waited_for() -> None:
    story = busy()
    before = story.core.digest()
    core, refused = imagined(story, by_ms=story.now_ms + HOUR_MS)

    assert refused == ""
    assert becomes(core) == {"paid": "waited for", "ends": "left", "loose": "stopped"}
    assert emptying.empty_ms(emptying.plan(core, "n1"), core.time_ms) is None
    forced, _ = imagined(story, by_ms=story.now_ms + HOUR_MS, force=True)
    assert becomes(forced) == {"paid": "stopped", "ends": "left", "loose": "stopped"}
    assert emptying.empty_ms(emptying.plan(forced, "n1"), forced.time_ms) == story.now_ms + HOUR_MS
    assert [row["forced"] for row in emptying.plan(forced, "n1")] == [False, False, True]
    assert story.core.digest() == before
    story.now_ms += 10 * MINUTE_MS
    story.tell(ev.RunCheckpointed(workload="loose", run=1, progress_ms=MINUTE_MS), "n1")
    assert becomes(imagined(story, by_ms=story.now_ms + HOUR_MS)[0])["loose"] == "moved"
    assert becomes(Core.from_snapshot(story.core.snapshot())) == {"paid": "stays", "ends": "stays", "loose": "stays"}


def test_an_order_that_would_be_refused_says_so() -> None:
    story = busy()

    core, refused = imagined(story, by_ms=0, principal="stranger")

    assert refused == "not_permitted"
    assert becomes(core)["paid"] == "stays"


def test_what_the_plan_says_is_what_happens() -> None:
    story = busy()
    by_ms = story.now_ms + 20 * MINUTE_MS
    core, _ = imagined(story, by_ms=by_ms, force=True)
    told = {row["workload"]: row["asked_ms"] for row in emptying.plan(core, "n1")}
    story.tell(ev.NodeDrained(node="n1", by_ms=by_ms, force=True))
    asked: dict[str, int] = {}

    beat = 0
    while story.now_ms <= by_ms:
        for decision in story.tick().decisions:
            if isinstance(decision, RunDrained):
                asked[decision.workload] = story.core.time_ms
        due_ms = story.core.due_ms()
        assert due_ms is not None
        beat += 1
        story.now_ms = min(due_ms, story.now_ms + MINUTE_MS)
        story.tell(ev.NodeHeartbeat(node="n1", beat=beat), "n1")

    assert asked == told
    assert asked == dict.fromkeys(told, by_ms - 30_000)
    assert set(becomes(Core.from_snapshot(story.core.snapshot())).values()) == {"stopping"}
