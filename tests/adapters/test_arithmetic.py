"""The printed arithmetic of allowances: what a person recomputes from the text alone is what the core decided by."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from apportion.adapters.cli import sharing
from apportion.adapters.seen import arithmetic, standing
from apportion.core.decisions import RunPlaced
from apportion.core.engine import Core
from apportion.core.events import BudgetClosed, BudgetGranted, NodeHeartbeat, PolicyActivated, RunStarted
from apportion.core.kernels import share
from apportion.core.policy.funding import shares_of
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import HOUR_MS, MINUTE_MS, Story, job, opened, simulated

NUMBER = r"-?[\d,]+(?:\.\d+)?"


def milli(text: str) -> int:
    """Return a printed number of GPUs as thousandths."""
    whole, _, rest = text.replace(",", "").lstrip("-").partition(".")
    return (int(whole) * 1_000 + int((rest + "000")[:3])) * (-1 if text.startswith("-") else 1)


def micro(text: str) -> int:
    """Return printed GPU-seconds as GPU-microseconds."""
    whole, _, rest = text.replace(",", "").partition(".")
    return int(whole) * 1_000_000 + int((rest + "000000")[:6])


def recomputed(line: str) -> int:
    """Return the allowance by hand: only what the line itself says, with divisions rounded down."""
    if re.search(r"allowance 0: (it is closed|the GPU time granted)", line):
        return 0
    if plain := re.fullmatch(rf"allowance {NUMBER} = entitled ({NUMBER}), and nothing is owed", line):
        return milli(plain[1])
    sums = re.search(
        rf"= entitled ({NUMBER}) ([+-]) (owed|overdrawn) ({NUMBER}) GPU-s / ({NUMBER}) s "
        rf"\(({NUMBER})\)(?: = ({NUMBER}))?(.*)$",
        line,
    )
    assert sums, line
    owed_us = micro(sums[4]) * (1 if sums[2] == "+" else -1)
    assert (sums[2] == "+") == (sums[3] == "owed")
    owed = owed_us * 1_000 // micro(sums[5])  # GPU-s / s in thousandths of a GPU, rounded down
    assert abs(owed) == milli(sums[6]), line
    total = milli(sums[1]) + owed
    if sums[7]:
        assert milli(sums[7]) == total, line
    if bound := re.search(rf", at most the ({NUMBER}) ", sums[8]):
        total = min(total, milli(bound[1]))
    elif sums[8]:
        assert sums[8] == ", at least 0"
        total = max(total, 0)
    cap = re.match(
        rf"allowance {NUMBER} = ({NUMBER}) \+ \(({NUMBER}) - ({NUMBER})\) x ({NUMBER}) / ({NUMBER}) \(the cap\); "
        rf"it wants ({NUMBER}) =",
        line,
    )
    if cap:
        base, wants, again, given_up, catch_up, said = (milli(part) for part in cap.groups())
        assert (base, wants) == (again, said) == (milli(sums[1]), total), line
        return base + (wants - base) * given_up // catch_up
    return total


def check(core: Core) -> tuple[int, int]:
    """Check every line of a core; returns how many lines there were, and how many were capped."""
    lines = standing.budgets(core)
    shares, state = shares_of(core.state), core.state
    told = {(row["pool"], row["budget"]): row for row in lines}
    capped = 0
    for row in range(state.budget.used):
        path = state.budget_path(row)
        if not path:
            continue
        line = told.pop((state.pool.keys[int(state.budget.pool[row])], path))
        assert line["allowance_milli"] == shares.allowance[row]
        assert line["entitled_milli"] == shares.entitled[row]
        if line["is_leaf"]:
            text = arithmetic.allowance_line(line)
            printed = re.match(rf"allowance ({NUMBER})", text)
            assert printed
            assert recomputed(text) == milli(printed[1]) == shares.allowance[row], text
            capped += "(the cap)" in text
        running = state.budget.running_milli[row] + line["runs_idle_cycles_milli"]
        assert sum(line[f"runs_{name}_milli"] for name in standing.STANDINGS) == running
    assert not told
    for pool in standing.pools(core):
        assert pool["lag_gpu_us"] == 0
        assert pool["allowance_milli"] <= pool["entitled_milli"] <= pool["capacity_milli"]
        for line in (found for found in lines if found["pool"] == pool["pool"] and not found["is_leaf"]):
            below = [found for found in lines if found["budget"].rpartition("/")[0] == line["budget"]]
            assert line["lag_gpu_us"] == sum(found["lag_gpu_us"] for found in below)
            terms = re.findall(rf"(?:=|\+) \S+ ({NUMBER})", arithmetic.sum_line(line, below))
            assert not terms or sum(map(milli, terms)) == line["allowance_milli"]
    return len(lines), capped


def cores(seed: int) -> Iterator[Core]:
    """Yield the core of a simulated day at some of its cycles."""
    logs = simulated(seed, hours=24, nodes=3)
    choose = random.Random(seed)
    stops = set(choose.sample(range(len(logs.batches)), 40))
    core, at = Core.new(), 0
    for number, batch in enumerate(logs.batches):
        while at < batch.input_seq:
            at = core.fold_many(logs.records, at)
        core.trust(batch.body, check=False)
        if number in stops:
            yield Core.from_snapshot(core.snapshot())


@pytest.mark.parametrize("seed", [21, 22])
def test_every_printed_allowance_can_be_recomputed_from_its_line(seed: int) -> None:
    totals = np.array([check(core) for core in cores(seed)]).sum(axis=0)

    assert totals[0] > 200
    assert totals[1] > 0, "the cap never bound: this history proves nothing about it"


def owed_story() -> Story:
    """Return the worked example of the rule at 4,200 s: C is owed 12,000 GPU-seconds, B has as much too much."""
    story = opened(
        nodes=1, gpus=16, budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 250_000), ("lab/c", 250_000))
    )
    for name in ("a1", "a2"):
        story.say(job(name, 4, budget="lab/a"), "ann")
    for name in ("b1", "b2", "b3"):
        story.say(job(name, 4, budget="lab/b"), "ann")
    for minute in range(61):
        if minute == 10:
            story.say(job("c1", 4, budget="lab/c"), "ann")
        batch = story.tick(MINUTE_MS if minute else 0)
        placed = [decision for decision in batch.decisions if isinstance(decision, RunPlaced)]
        for run in placed:
            story.say(RunStarted(workload=run.workload, run=run.run, node="n1"), "n1")
        story.say(NodeHeartbeat(node="n1", beat=minute + 1), "n1")
    return story


def lines_of(story: Story) -> dict[str, Any]:
    return {row["budget"]: row for row in standing.budgets(Core.from_snapshot(story.core.snapshot()))}


def test_the_worked_example_reads_as_in_the_book() -> None:
    lines = lines_of(owed_story())

    assert arithmetic.allowance_line(lines["lab/a"]) == "allowance 8 = entitled 8, and nothing is owed"
    assert (
        arithmetic.allowance_line(lines["lab/b"])
        == "allowance 0.666 = entitled 4 - overdrawn 12,000 GPU-s / 3,600 s (3.334)"
    )
    assert arithmetic.allowance_line(lines["lab/c"]) == (
        "allowance 4 = entitled 4 + owed 12,000 GPU-s / 3,600 s (3.333) = 7.333, at most the 4 it asks for"
    )
    assert arithmetic.runs_line(lines["lab/a"]) == "runs 8 (8 funded), 0 waiting"
    assert arithmetic.runs_line(lines["lab/b"]) == "runs 8 (8 unfunded), 4 waiting"
    below = [lines["lab/a"], lines["lab/b"], lines["lab/c"]]
    assert arithmetic.sum_line(lines["lab"], below) == "allowance 12.666 = a 8 + b 0.666 + c 4"


def test_a_budget_that_funds_nothing_says_which_of_two_reasons_it_is() -> None:
    story = opened(budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000)))
    story.say(BudgetGranted(pool="h100", budget="lab/a", gpu_us=1))
    story.say(job("a", 1, budget="lab/a"), "ann")
    story.tick(HOUR_MS)
    story.say(BudgetClosed(pool="h100", budget="lab/b"))
    story.tick(HOUR_MS)
    lines = lines_of(story)

    assert arithmetic.allowance_line(lines["lab/b"]) == "allowance 0: it is closed"
    assert arithmetic.allowance_line(lines["lab/a"]).startswith("allowance")
    assert recomputed(arithmetic.allowance_line(lines["lab/a"])) == lines["lab/a"]["allowance_milli"]


def test_the_cap_is_printed_with_its_two_numbers() -> None:
    """Three leaves of 10 GPUs: one is deep in debt, two want more than it gives up (numbers of the kernel, by hand)."""
    column = lambda *values: np.array(values, dtype=np.int64)  # noqa: E731
    entitled, lag = column(30_000, 10_000, 10_000, 10_000), column(0, -(10**11), 4 * 10**10, 6 * 10**10)
    wanted, allowed = column(0, 0, 0, 0), column(0, 0, 0, 0)
    catch_up, given_up = share.allowances(
        0, 30_000, 3_600_000, 4, column(0, 0, 0, 0), column(3, 0, 0, 0), column(0, 30_000, 30_000, 30_000), entitled, lag,
        column(0, 0, 0, 0), wanted, allowed,
    )  # fmt: skip
    row = {
        "allowance_milli": int(allowed[2]), "wanted_milli": int(wanted[2]), "entitled_milli": 10_000, "owed_milli": 11_111,
        "lag_gpu_us": 4 * 10**10, "horizon_ms": 3_600_000, "barred": False, "closed": False, "policy": "fair",
        "demand_milli": 30_000, "catch_up_milli": catch_up, "given_up_milli": given_up,
    }  # fmt: skip

    text = arithmetic.allowance_line(row)

    assert (catch_up, given_up) == (11_111 + 16_666, 10_000)
    assert text == (
        "allowance 14 = 10 + (21.111 - 10) x 10 / 27.777 (the cap); it wants 21.111 = "
        "entitled 10 + owed 40,000 GPU-s / 3,600 s (11.111)"
    )
    assert recomputed(text) == 14_000


def test_share_merges_what_was_used_with_what_the_core_allows() -> None:
    """Every line is printed with its own arithmetic, the closed child of a budget included; without a core only what was used."""
    story = opened(budgets=(("lab", 1_000_000), ("lab/a", 500_000), ("lab/b", 500_000), ("lab/b/x", 1_000_000)))
    story.say(job("a", 2, budget="lab/a"), "ann")
    story.say(BudgetClosed(pool="h100", budget="lab/b/x"))
    story.tick(HOUR_MS)
    with Projection() as projection:
        projection.ingest(story.logs.records, story.logs.batches)
        projection.refresh()
        used = queries.run(projection.con, "share").dicts()

    pools, rows = sharing.merged(used, Core.from_snapshot(story.core.snapshot()))

    told = {row["budget"]: (row["guaranteed_milli"], row["arithmetic"]) for row in rows}
    assert [pool["capacity_milli"] for pool in pools] == [16_000]
    assert told == {
        "lab": (16_000, "allowance 2 = a 2"),
        "lab/a": (8_000, "allowance 2 = entitled 2, and nothing is owed"),
        "lab/b": (8_000, "allowance 0: nothing below it has one"),
        "lab/b/x": (0, "allowance 0: it is closed"),
    }
    assert [row["runs_protected_milli"] for row in rows] == [2_000, 2_000, 0, 0]
    assert [row["budget"] for row in sharing.merged(used, None)[1]] == list(told)


def test_a_policy_that_looks_at_no_share_is_said_and_not_reckoned() -> None:
    story = owed_story()
    story.say(PolicyActivated(pool="h100", policy="fifo"))
    story.tick(MINUTE_MS)
    lines = lines_of(story)

    asked = lines["lab/b"]["demand_milli"]
    assert lines["lab/b"]["allowance_milli"] == asked > 0
    assert (
        arithmetic.allowance_line(lines["lab/b"])
        == f"allowance {asked // 1000}: all it asks for; policy fifo looks at no share"
    )
