"""Tables grow while a log is read: hundreds of everything that has rows, each told one by one, and nothing is lost."""

from __future__ import annotations

from apportion.core import events as ev
from apportion.core.engine import Core
from apportion.core.units import GPU_US_PER_GPU_HOUR, MS_PER_DAY
from tests.core.story import Story

MANY = 300  # tables begin with 64 rows, and double


def test_hundreds_of_everything_are_read() -> None:
    story = Story()
    story.open()
    for number in range(MANY):
        story.tell(ev.PoolDefined(pool=f"p{number}", levels=("rack", f"spine{number}")))
        node = ev.NodeJoined(
            node=f"n{number}", pool="p0", gpus=2, domains=(f"r{number}", f"s{number}"), labels={"gen": f"g{number}"}
        )
        story.tell(node, by=f"agent{number}")
        story.tell(ev.BudgetSet(pool="p0", budget=f"b{number}", share_ppm=1_000))
        story.tell(ev.BudgetSet(pool="p0", budget=f"b{number}", share_ppm=2_000, from_ms=story.now_ms + MS_PER_DAY + number))
        story.tell(ev.BudgetGranted(pool="p0", budget=f"b{number}", gpu_us=100 * GPU_US_PER_GPU_HOUR))
        story.tell(ev.GrantScheduled(pool="p0", budget=f"b{number}", gpu_us=GPU_US_PER_GPU_HOUR, period="monthly"))
        story.tell(ev.MemberGranted(budget=f"b{number}", member=f"m{number}"))
        job = ev.WorkloadSubmitted(
            workload=f"w{number}", budget=f"b{number}", pools=("p0",), gpus_milli=1_000, labels={"gen": f"g{number}"}, apart="x"
        )
        story.tell(job, by=f"m{number}")
    batch = story.tick()

    state = story.core.state
    assert story.refused() == 0
    assert len({one.workload for one in batch.decisions if type(one).__name__ == "RunPlaced"}) == MANY
    assert (len(state.change), len(state.run), len(state.wish), len(state.group)) == (2 * MANY, MANY, MANY, MANY)
    assert Core.from_snapshot(story.core.snapshot()).digest() == story.core.digest()
