"""Starts that failed fail again where their trouble is: a node's on that node in its bad spell, a workload's wherever it goes."""

from __future__ import annotations

from collections import Counter

from apportion.adapters.simulation.driver import Logs
from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.stated import stated
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.whatif.demand import Asked, Attempt, Demand, Ending, Failure, Needs
from apportion.adapters.whatif.failed_starts import FailedStarts
from apportion.adapters.whatif.playing import Change, Play
from apportion.core import events as ev
from apportion.core.decisions import CycleBatch, NodeSuspended, Piece, RunClosed
from apportion.core.envelope import StoredBatch
from apportion.core.reasons import Outcome
from tests.core.story import OPERATOR, Story
from tests.simulation.worlds import Setting
from tests.whatif.past import again, past_of, played_logs, stored

REFUSING = Setting(8, nodes=6, hours=6, demand_milli=900, largest=8, habits=CALM._replace(refused_start=120_000), rates=QUIET)
SAID, SILENT = Failure(2_000, ("n1",), said=True, exit_code=3), Failure(120_000, ("n1",), said=False)


def attempt(at_ms: int, node: str = "n1", failure: Failure | None = None) -> Attempt:
    """Return a run of one GPU that started a second after its placement, unless it failed."""
    return Attempt(at_ms, 0, (Piece(node, (0,), 1_000),), 0 if failure else at_ms + 1_000, failure=failure)


def on(node: str, failure: Failure) -> Failure:
    """Return the same of another node."""
    return failure._replace(nodes=(node,))


def test_failures_of_two_workloads_in_a_row_are_the_nodes_until_a_start_succeeds() -> None:
    attempts = {
        "a#1": attempt(10, failure=SAID), "b#1": attempt(20, failure=SILENT), "c#1": attempt(15, "n2"), "c#2": attempt(30),
        "a#2": attempt(40, failure=SAID),
    }  # fmt: skip

    found = FailedStarts(attempts, [])

    here, there = (Piece("n1", (3,), 500),), (Piece("n2", (0,), 1_000),)
    assert [found.on(here, at_ms) for at_ms in (9, 10, 19, 20, 29, 30)] == [
        None, ("n1", SAID), ("n1", SAID), ("n1", SILENT), ("n1", SILENT), None
    ]  # fmt: skip
    assert found.on(there, 15) is None
    assert found.on((*there, *here), 15) == ("n1", SAID)
    assert [found.own(key) for key in attempts] == [False, False, False, False, True]
    assert [found.of("a", answered) for answered in range(2)] == [SAID, None], "its second start failed once, not for good"
    assert found.of("b", 0) is None


def test_a_node_that_was_put_right_begins_anew() -> None:
    attempts = {"a#1": attempt(10, failure=SAID), "b#1": attempt(20, failure=SAID), "c#1": attempt(40, failure=SAID)}
    here = (Piece("n1", (0,), 1_000),)

    found = FailedStarts(attempts, [(30, "n1"), (5, "n2")])
    never = FailedStarts(attempts, [])

    assert [found.on(here, at_ms) for at_ms in (29, 30, 40)] == [("n1", SAID), None, None]
    assert found.own("c#1")
    assert never.on(here, 1_000_000) == ("n1", SAID)
    assert FailedStarts(attempts, [(15, "n1"), (30, "n1")]).on(here, 20) is None, "one failure is no spell"


def test_a_workload_fails_as_it_did_and_for_good_where_it_was_given_up() -> None:
    attempts = {
        "a#1": attempt(10), "a#2": attempt(20, "n2", on("n2", SAID)), "a#3": attempt(30, "n3"),
        "b#1": attempt(10, "n4", on("n4", SAID)), "b#2": attempt(20, "n5", on("n5", SAID)),
        "c#1": attempt(30, "n6", on("n6", SILENT)),
    }  # fmt: skip

    found = FailedStarts(attempts, [], frozenset({"b"}))

    assert [found.of("a", answered) for answered in range(4)] == [None, on("n2", SAID), None, None]
    assert [found.of("b", answered) for answered in (0, 1, 2, 7)] == [on("n4", SAID), *[on("n5", SAID)] * 3]
    assert found.of("c", 0) is None, "nobody answered: what was silent stays silent"


def failed(batches: list[CycleBatch]) -> Counter[str]:
    """Return how many starts of each workload failed."""
    return Counter(
        decision.workload
        for batch in batches
        for decision in batch.decisions
        if isinstance(decision, RunClosed) and decision.outcome == Outcome.START_FAILED.value
    )


def test_where_every_run_is_made_again_the_same_workloads_fail_to_start_as_often() -> None:
    past = past_of(played_logs(REFUSING), 0.1)
    batches: list[CycleBatch] = []

    played = Play(past.history, Needs(past.history.recorder), watch=batches.append, remake_all=True).run()

    was, now = failed(stored(past.logs)), failed(batches)
    assert sum(was.values()) >= 10
    assert played.world.remade_runs > 2 * sum(was.values())
    assert sum((was & now).values()) >= 9 * sum(was.values()) // 10
    assert sum((now - was).values()) <= sum(was.values()) // 5, "what is placed on a node in its bad spell"


MINUTE_MS = 60_000


class Blackhole:
    """Two nodes of four GPUs; n1 fails whatever it is given in minutes 10 to 40, when it is put right; n2 is there from 16 on."""

    def __init__(self) -> None:
        self.story = Story()
        self.begin_ms = self.story.now_ms
        tell = self.story.tell
        self.story.open()
        tell(ev.PoolDefined(pool="p"))
        tell(ev.PolicyActivated(pool="p", start_timeout_ms=120_000, heartbeat_timeout_ms=600_000))
        tell(ev.BudgetSet(pool="p", budget="A", share_ppm=1_000_000))
        for node in ("n1", "n2"):
            tell(ev.NodeJoined(node=node, pool="p", gpus=4, agent=f"agent-{node}"))
        tell(ev.NodeCordoned(node="n2", reason="later"))
        self.answered: set[str] = set()
        for minute in range(60):
            self._minute(minute)

    def _minute(self, minute: int) -> None:
        story = self.story
        for name in ("x", "y") if minute == 12 else ():
            story.tell(ev.WorkloadSubmitted(workload=name, budget="A", pools=("p",), gpus_milli=1_000))
        if minute in (16, 40):
            story.tell(ev.NodeUncordoned(node="n2" if minute == 16 else "n1", reason="repaired"))
        for node in ("n1", "n2"):
            story.tell(ev.NodeHeartbeat(node=node, beat=minute + 1), f"agent-{node}")
        story.now_ms += MINUTE_MS
        state = story.core.state
        story.tick()
        for key, row in list(state.run.row_of.items()):
            if key in self.answered:
                continue
            self.answered.add(key)
            workload, _, number = key.partition("#")
            node = state.node.keys[int(state.run.lead[row])]
            report: ev.Event = ev.RunStarted(workload=workload, run=int(number), node=node)
            if node == "n1" and 10 <= minute < 40:
                report = ev.RunFinished(workload=workload, run=int(number), node=node, outcome="refused", exit_code=7)
            story.tell(report, f"agent-{node}")

    def logs(self) -> Logs:
        """Return both logs."""
        batches = sorted(self.story.batches.items())
        return Logs(self.story.records, [StoredBatch(number, seq, body) for number, (seq, body) in enumerate(batches, 1)])


def test_a_node_that_swallowed_all_comers_swallows_a_job_that_history_had_not() -> None:
    told = Blackhole()
    past = past_of(told.logs())
    was = stored(past.logs)
    assert any(isinstance(decision, NodeSuspended) and decision.node == "n1" for batch in was for decision in batch.decisions)
    needs = Needs(past.history.recorder)
    at_ms = told.begin_ms + 12 * MINUTE_MS + 1
    more = ev.WorkloadSubmitted(workload="more", budget="A", pools=("p",), gpus_milli=1_000)
    needs.recorder.asked["more"] = Asked("A", 1_000)
    needs.recorder.demand["more"] = Demand([Ending(5 * MINUTE_MS, succeeded=True)], censored="")
    batches: list[CycleBatch] = []

    Play(past.history, needs, Change((stated(at_ms, OPERATOR, more, "what-if.more"),)), batches.append).run()

    mine = [
        (decision.outcome, decision.blamed, decision.exit_code)
        for batch in batches
        for decision in batch.decisions
        if isinstance(decision, RunClosed) and decision.workload == "more"
    ]
    assert mine[0] == (Outcome.START_FAILED.value, ("n1",), 7)
    assert mine[-1][0] == Outcome.SUCCEEDED.value, "it starts elsewhere, or when the node is right again"
    _played, found = again(past)
    assert found.moved == [], "and with nothing changed all is history"
