"""Runs that are made again sleep where their workload slept, in useful time, and the core sees it by their heartbeats."""

from __future__ import annotations

from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.history import Reader
from apportion.adapters.whatif.idleness import Idleness, Span
from apportion.adapters.whatif.playing import Play
from apportion.core.decisions import CycleBatch, RunIdle
from apportion.core.units import NEVER_MS
from tests.simulation.worlds import HOUR_MS, Setting, jobs_of
from tests.whatif.past import cut, past_of, played_logs, stored

SLEEPY = Setting(
    9, nodes=8, hours=14, demand_milli=900, largest=16, habits=CALM._replace(falls_asleep=400_000), rates=QUIET,
    idle_hold_ms=300_000,
)  # fmt: skip


def test_a_run_rests_while_all_of_its_nodes_say_so() -> None:
    idleness = Idleness()
    say = lambda node, idle, at_ms: idleness.listed(node, ("g#1", "w#1"), idle, lambda key: 2 if key == "g#1" else 1, at_ms)  # noqa: E731

    say("n1", ("g#1", "w#1"), 100)
    say("n2", ("g#1",), 150)
    idleness.saved("g#1")
    say("n1", ("w#1",), 200)
    say("n2", ("g#1",), 250)
    say("n1", ("g#1",), 300)
    idleness.over("w#1", 0, 500, lambda at_ms: at_ms)
    idleness.over("g#1", 1_000, 1_400, lambda at_ms: 1_000 + at_ms)

    rests = [(at_ms, idleness.at("g", at_ms)) for at_ms in (1_149, 1_150, 1_199, 1_200, 1_299, 1_300, 10**9)]
    first, open_end = Span(1_150, 1_200, saves=True), Span(1_300, NEVER_MS)
    assert [span for _at_ms, span in rests] == [None, first, first, None, None, open_end, open_end]
    assert idleness.at("w", 99) is None
    assert idleness.at("w", 100) == Span(100, 300)


def test_the_last_run_tells_of_what_it_did_again() -> None:
    idleness = Idleness()

    def run(number: int, resume_ms: int, rests: list[tuple[int, int]], done_ms: int) -> None:
        for begin_ms, end_ms in rests:
            idleness.listed("n", (f"w#{number}",), (f"w#{number}",), lambda _key: 1, begin_ms)
            if end_ms < done_ms:
                idleness.listed("n", (f"w#{number}",), (), lambda _key: 1, end_ms)
        idleness.over(f"w#{number}", resume_ms, done_ms, lambda at_ms: at_ms)

    run(1, 0, [(10, 20), (60, 100)], 100)
    assert [idleness.at("w", at_ms) is not None for at_ms in (9, 10, 20, 60, 1_000)] == [False, True, False, True, True]
    run(2, 15, [], 40)
    assert [idleness.at("w", at_ms) is not None for at_ms in (9, 10, 14, 15, 59, 60, 1_000)] == [
        False, True, True, False, False, True, True
    ]  # fmt: skip
    run(3, 15, [(30, 90)], 80)
    assert [idleness.at("w", at_ms) is not None for at_ms in (14, 29, 30, 60, 1_000)] == [True, False, True, True, True]
    run(4, 0, [], 2_000)
    assert not any(idleness.at("w", at_ms) for at_ms in range(0, 3_000, 5))


def sleepers(batches: list[CycleBatch]) -> dict[str, int]:
    """Return the workloads that were shown as doing nothing, and how often."""
    found: dict[str, int] = {}
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, RunIdle) and decision.since_ms:
                found[decision.workload] = found.get(decision.workload, 0) + 1
    return found


def test_where_every_run_is_made_again_the_same_workloads_hold_gpus_and_do_nothing() -> None:
    past = past_of(played_logs(SLEEPY), 0.1)
    batches: list[CycleBatch] = []

    Play(past.history, Needs(past.history.recorder), watch=batches.append, remake_all=True).run()

    was, now = sleepers(stored(past.logs)), sleepers(batches)
    assert len(was) >= 10
    assert len(now.keys() & was.keys()) >= 8 * len(was) // 10
    assert len(now.keys() - was.keys()) <= len(was) // 5


def test_a_long_sleeper_of_before_the_range_sleeps_on() -> None:
    """What the core itself holds at the beginning of the range is all that is known of it."""
    seen = 0
    for part in (0.3, 0.4, 0.5, 0.6):
        core, _rest = cut(played_logs(SLEEPY), part)
        ahead = Needs(Reader(core).finish().recorder)
        table = core.state.run
        for key, row in table.row_of.items():
            if int(table.idle_since_ms[row]):
                seen += 1
                progress_ms = ahead.recorder.progress_ms(ahead.recorder.attempts[key], core.time_ms)
                assert ahead.idle(key.partition("#")[0], progress_ms) is not None
    assert seen >= 3


def test_the_sleep_that_is_read_is_the_sleep_of_the_simulated_people() -> None:
    """The oracle is the world that made the past; lists of runs come every half hour, so it is seen up to that late."""
    from apportion.adapters.simulation.people import fate_of

    past = past_of(played_logs(SLEEPY))
    needs = Needs(past.history.recorder)
    fates = [fate_of(SLEEPY.seed, SLEEPY.habits, "h100", job) for job in jobs_of(SLEEPY)]

    seen = 0
    for fate in fates:
        spans = needs.recorder.idleness.of(fate.workload)
        if spans:
            seen += 1
            assert fate.asleep_from_ms >= 0
            assert -120_000 <= spans[0].from_ms - fate.asleep_from_ms <= HOUR_MS // 2 + 180_000
    assert seen >= 10
