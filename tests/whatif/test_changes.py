"""Each kind of change does what its name says, and what cannot be is said with the line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.adapters.cli import arguments
from apportion.adapters.simulation.people import CALM
from apportion.adapters.simulation.stated import OPERATOR, stated
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.whatif import change, spec
from apportion.adapters.whatif.charts import PICTURES
from apportion.adapters.whatif.demand import Needs
from apportion.adapters.whatif.difference import document
from apportion.adapters.whatif.history import Entry
from apportion.adapters.whatif.playing import Play
from apportion.adapters.whatif.report import assumptions, budget_rows, headline, moved_rows, totals
from apportion.core.decisions import CycleBatch, RunClosed, RunPlaced
from apportion.core.events import NodeJoined
from apportion.core.units import MS_PER_HOUR
from tests.simulation.worlds import Setting
from tests.whatif.past import Past, again, past_of, played_logs

BUSY = Setting(31, nodes=4, hours=8, demand_milli=3_000, largest=8, habits=CALM, rates=QUIET)
UNITS = spec.Units(
    arguments.duration_ms, arguments.share_ppm, arguments.instant_ms, arguments.gpus_milli, arguments.gpu_hours_us
)


@pytest.fixture(scope="module")
def past() -> Past:
    return past_of(played_logs(BUSY), 0.1)


def test_a_larger_share_gives_more_to_its_budget_and_less_to_who_gave_it(past: Past) -> None:
    text = '[shares]\n"itp/cluster04" = "5%"\n"itp/cluster10" = "30%"\n'
    wishes = spec.budgets(text, "shares.toml", past.core(), UNITS)

    _played, found = again(past, change.budgets(past.core(), past.history, wishes, "shares.toml"))

    was, now = found.before.accounts, found.after.accounts
    assert now["itp/cluster10"].funded_gpu_us > was["itp/cluster10"].funded_gpu_us
    assert now["itp/cluster04"].funded_gpu_us < was["itp/cluster04"].funded_gpu_us
    assert found.assumed.refusals == {}
    assert found.moved
    assert any("35.0 % -> 5.0 %" in line for line in headline(found))
    assert len(budget_rows(found)) >= 10
    assert totals(found)
    assert assumptions(found)
    assert moved_rows(found)
    assert len(document(found)["budgets"]) == len(budget_rows(found))
    assert all(draw(found).startswith("<svg") for draw in PICTURES.values())


@pytest.mark.parametrize(
    ("text", "said", "do"),
    [
        ('[shares]\n\n"itp/cluster99" = "5%"\n', "b.toml, line 3: pool h100 had no budget itp/cluster99", "itp/cluster01"),
        ('[shares]\n"itp/cluster04" = "95%"\n', "b.toml, line 2: shares below itp come to 160.0 %", "shrinks"),
        ('[shares]\n"itp/cluster04" = "lots"\n', "b.toml, line 2: itp/cluster04: 'lots' is not a share", ""),
        ('[shares]\n"itp/cluster04" "5%"\n', "b.toml: ", "--help"),
        ('[share]\n"itp/cluster04" = "5%"\n', "b.toml, line 1: there is no 'share'", "[shares]"),
        ('[pool.a100.shares]\n"itp" = "5%"\n', "there is no pool 'a100'", "h100"),
        ("[shares]\n", "b.toml changes nothing", "[shares]"),
        ("shares = 5\n", "b.toml, line 1: shares = 5 is no table", "[shares]"),
        ("[grants]\n[pool]\nh100 = 3\n", "b.toml, line 3: h100 = 3 is no table", "[pool.NAME.shares]"),
        ("pool = 3\n", "b.toml, line 1: pool = 3 is no table", "[pool.NAME.shares]"),
        ("[pool.h100]\nshares = 'x'\n", "b.toml, line 2: shares = 'x' is no table", "[shares]"),
        ('[shares]\n"itp/cluster04" = ["5%"]\n', "b.toml, line 2: itp/cluster04: \"['5%']\" is not a share", ""),
    ],
)
def test_a_wrong_budgets_file_is_told_with_its_line(past: Past, text: str, said: str, do: str) -> None:
    with pytest.raises(change.ChangeRefused) as refused:
        change.budgets(past.core(), past.history, spec.budgets(text, "b.toml", past.core(), UNITS), "b.toml")

    assert said in refused.value.what
    assert do in refused.value.do


def test_a_grant_fills_a_metered_budget(past: Past) -> None:
    wishes = spec.budgets('[grants]\n"itp/cluster09" = 500\n', "g.toml", past.core(), UNITS)

    _played, found = again(past, change.budgets(past.core(), past.history, wishes, "g.toml"))

    assert found.after.accounts["itp/cluster09"].funded_gpu_us > found.before.accounts["itp/cluster09"].funded_gpu_us


def test_without_a_budget_it_gets_nothing_and_the_others_wait_less(past: Past) -> None:
    _played, found = again(past, change.without(past.core(), past.history, "itp/cluster04"))

    gone = found.after.accounts["itp/cluster04"]
    assert gone.jobs == 0
    assert gone.starts == 0
    assert gone.funded_gpu_us + gone.unfunded_gpu_us < MS_PER_HOUR * 1_000, "what ran at the beginning is stopped at once"
    was, now = (
        sum(one.starts for name, one in side.accounts.items() if name != "itp/cluster04") for side in (found.before, found.after)
    )
    assert now > was


def test_without_one_job_nothing_is_known_of_it(past: Past) -> None:
    name = next(name for name, life in past.before.lives.items() if life.new and life.starts)

    _played, found = again(past, change.without(past.core(), past.history, name))

    assert name not in found.after.lives
    with pytest.raises(change.ChangeRefused, match="no workload and no budget"):
        change.without(past.core(), past.history, "nobody")


def test_another_policy_decides_otherwise_and_refuses_what_is_none(past: Past) -> None:
    played, found = again(past, change.policy(past.core(), past.history, "h100", {"policy": "fifo"}))

    assert played.differing > 0
    assert found.after.total.preemptions == 0
    with pytest.raises(change.ChangeRefused, match="policy of h100"):
        change.policy(past.core(), past.history, "h100", {"policy": "lottery"})
    with pytest.raises(change.ChangeRefused, match="no rule quantum"):
        change.policy(past.core(), past.history, "h100", {"quantum": 1})
    with pytest.raises(change.ChangeRefused, match="no pool 'a100'"):
        change.policy(past.core(), past.history, "a100", {"policy": "fifo"})


def test_nodes_that_join_and_leave_change_the_supply_by_exactly_their_time(past: Past) -> None:
    text = 'leave = ["node001"]\n[[join]]\npool = "h100"\nnodes = 3\ngpus = 8\n'
    joining, leaving = spec.cluster(text, "c.toml", UNITS)

    played, found = again(past, change.cluster(past.core(), past.history, joining, leaving))

    first, last = past.history.from_ms, past.history.cycles[-1].time_ms
    assert found.after.supply_gpu_us - found.before.supply_gpu_us == 2 * 8_000 * (last - first)
    for world in (found.before, found.after):
        given = world.total.funded_gpu_us + world.total.unfunded_gpu_us
        assert world.supply_gpu_us == given + world.idle_gpu_us + world.down_gpu_us, "to the last GPU-microsecond"
    given_back = past.before.total.lost_gpu_us, found.after.total.lost_gpu_us
    assert found.before.down_gpu_us == 0
    assert found.after.down_gpu_us <= sum(given_back), "new nodes are heard of; what node001's runs get back is down time"
    assert found.after.total.starts > found.before.total.starts
    assert not any(played.core.state.node.silent[row] for row in played.core.state.node.row_of.values())
    group = "[[join]]\npool = 'h100'\nnodes = {}\ngpus = 8\n"
    for wrong in (
        "leave = 3\n", "[[join]]\npool = 'h100'\n", group.format(0), group.format("true"), group.format("'8'"), "more = 1\n", "",
        "join = 3\n", "join = [3]\n", "leave = [3]\n",
    ):  # fmt: skip
        with pytest.raises(change.ChangeRefused, match=r"c\.toml"):
            spec.cluster(wrong, "c.toml", UNITS)


def test_nodes_that_nobody_has_or_that_join_too_late_are_told(past: Past) -> None:
    """Also where another node joins in the range: that one is no excuse for a wrong name."""
    joins = stated(past.history.from_ms + 60_000, OPERATOR, NodeJoined(node="extra", pool="h100", gpus=8), "join")
    entry = Entry(past.history.from_seq + 1, joins.at_ms, "node.joined", "", joins.subject, joins.body)
    history = replace(past.history, entries=[entry, *past.history.entries])

    with pytest.raises(change.ChangeRefused, match="no node 'node999'"):
        change.cluster(past.core(), history, [], ["node999"])
    assert change.cluster(past.core(), history, [], ["extra"]).gone == {"extra"}
    late = spec.cluster("[[join]]\npool = 'h100'\nnodes = 1\ngpus = 8\nfrom = 2030-01-01\n", "c.toml", UNITS)
    with pytest.raises(change.ChangeRefused, match="would join at 2030-01-01 00:00:00Z, and the range ends at 2026"):
        change.cluster(past.core(), history, *late)


def test_one_more_job_runs_as_long_as_was_said(past: Past) -> None:
    needs = Needs(past.history.recorder)
    core = past.core()
    extras = spec.job("budget=itp/cluster10,gpus=2,runs=90m,min-runtime=10m,priority=5", 1, core, UNITS)
    _played, found = again(past, change.submitted(core, past.history, needs, extras), needs=needs)

    life = found.after.lives["what-if-1"]
    assert life.first_ms >= 0
    assert life.outcome == "succeeded"
    assert life.end_ms - life.first_ms >= 90 * 60_000
    wrongs = ("budget=itp/cluster10,gpus=2", "gpus=2,runs=1h,budget", "budget=lab,gpus=1,runs=1h", "budget=itp,gpus=x,runs=1h")
    for wrong in wrongs:
        with pytest.raises(change.ChangeRefused, match="--submit"):
            spec.job(wrong, 1, core, UNITS)


def test_a_run_that_changed_its_place_still_does_all_of_its_work(past: Past) -> None:
    """No work is made up or lost by replaying: what ended in both worlds has done the same useful time, but for a start-up."""
    needs = Needs(past.history.recorder)
    batches: list[CycleBatch] = []
    other = change.policy(past.core(), past.history, "h100", {"policy": "fifo"})
    Play(past.history, needs, other, batches.append).run()

    placed: dict[str, int] = {}
    checked = 0
    for batch in batches:
        for decision in batch.decisions:
            if isinstance(decision, RunPlaced):
                placed[f"{decision.workload}#{decision.run}"] = decision.resume_from_ms
            elif isinstance(decision, RunClosed) and decision.outcome == "succeeded":
                demand = past.history.recorder.demand.get(decision.workload)
                key = f"{decision.workload}#{decision.run}"
                if demand is None or demand.censored or not demand.endings or key not in placed:
                    continue
                done_ms = placed[key] + decision.end_ms - decision.placed_ms
                assert demand.endings[-1].progress_ms <= done_ms <= demand.endings[-1].progress_ms + 180_000, key
                checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        ("policy", "fifoo", "policy fifoo is not accepted: one of drf, fair, fair_tree, fifo, horizon, priority"),
        ("packing", "worst", "packing worst is not accepted: one of balanced, best_fit, fgd"),
        ("quantum_ms", 1, "quantum_ms 1ms is not accepted: it must be at least 1s"),
        ("reservations_max", "foo", "reservations_max foo is not accepted: it must be a whole number"),
    ],
)
def test_a_rule_that_no_pool_may_have_is_told_with_what_it_may_be(past: Past, rule: str, value: int | str, said: str) -> None:
    with pytest.raises(change.ChangeRefused) as refused:
        change.policy(past.core(), past.history, "h100", {rule: value})

    assert refused.value.what == f"policy of h100: {said}"


def test_another_rule_is_told_in_its_unit(past: Past) -> None:
    assert change.policy(past.core(), past.history, "h100", {"quantum_ms": 1_800_000}).words == ("pool h100: quantum_ms 30m",)
