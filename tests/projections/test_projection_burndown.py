"""Burn-downs: each day ends where its statement closes, and outlooks are the arithmetic they say they are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from apportion.adapters.charts.burndown import chart
from apportion.adapters.statements.burndown import DoesNotBurn, Outlook, days_of, outlooks
from apportion.projections import queries
from apportion.projections.runner import Projection
from tests.projections.history import DAY_MS, HOUR_MS, START_MS, simulated
from tests.projections.test_projection_statement import HOUR_US, made


@pytest.mark.parametrize("seed", [33])
def test_each_day_ends_where_its_statement_closes(seed: int) -> None:
    logs = simulated(seed, hours=72)
    metered = 0
    with Projection() as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        con = projection.con
        now_ms = queries.as_of(con).time_ms
        pool_used = {row["day"]: 0 for row in queries.run(con, "usage", by=["day"]).dicts()}
        for row in queries.run(con, "budgets").dicts():
            where = {"budget": row["budget"], "pool": "h100"}
            edges = queries.run(con, "balance", **where, from_ms=START_MS, to_ms=now_ms + 1).dicts()
            burned = queries.run(con, "burn_down", **where, from_ms=START_MS).dicts()
            days = days_of(START_MS, now_ms, edges, burned)

            assert [day["day_ms"] for day in days] == [START_MS + n * DAY_MS for n in range(3)]
            for day in days:
                last = day["until_ms"] + (day["until_ms"] == now_ms)
                one = made(projection, row["budget"], day["day_ms"], last)
                if one.metered:
                    assert day["balance_gpu_us"] == one.closing_gpu_us
                    metered += 1
                assert day["funded_gpu_us"] == one.total("funded_gpu_us") - one.total("refunded_gpu_us")
                assert day["unfunded_gpu_us"] == one.total("unfunded_gpu_us") - one.total("unfunded_refunded_gpu_us")
            if row["budget"] == "itp":
                for day, told in zip(days, burned, strict=True):
                    pool_used[told["day"]] = day["funded_gpu_us"] + day["unfunded_gpu_us"]
                    assert told["pool_used_gpu_us"] == pool_used[told["day"]]  # one tree holds all of the pool
                    assert day["got_ppm"] == 1_000_000
            if row["metered"]:
                assert days[-1]["balance_gpu_us"] == row["left_gpu_us"] + row["reserved_gpu_us"]
                wrong = [{**burned[0], "charged_gpu_us": burned[0]["charged_gpu_us"] + 1}, *burned[1:]]
                with pytest.raises(DoesNotBurn, match="DOES NOT ADD UP"):
                    days_of(START_MS, now_ms, edges, wrong)
    assert metered > 2


def edge(name: str, at_ms: int, charged: int, refunded: int = 0, metered_ms: int = START_MS) -> dict[str, Any]:
    return {
        "edge": name, "at_ms": at_ms, "charged_gpu_us": charged, "refunded_gpu_us": refunded, "metered_ms": metered_ms
    }  # fmt: skip


def test_outlooks_by_hand() -> None:
    """100 GPU-h left; 4 GPUs now: 25 h. In 7 days 84 GPU-h net, a mean of half a GPU: 200 h."""
    now_ms = START_MS + 30 * DAY_MS
    week = [edge("opening", now_ms - 7 * DAY_MS, 10 * HOUR_US), edge("closing", now_ms, 100 * HOUR_US, 6 * HOUR_US)]

    assert outlooks(now_ms, 100 * HOUR_US, 4_000, week) == [
        Outlook("now", 4_000, now_ms + 25 * HOUR_MS),
        Outlook("the last 7 days", 500, now_ms + 200 * HOUR_MS),
    ]
    assert [end.ends_ms for end in outlooks(now_ms, 0, 0, week)] == [now_ms, now_ms]
    assert outlooks(now_ms, HOUR_US, 0, week)[0].ends_ms is None
    young = [
        edge("opening", now_ms - 7 * DAY_MS, 0),
        edge("closing", now_ms, 10 * HOUR_US, metered_ms=now_ms - 10 * HOUR_MS),
    ]
    assert outlooks(now_ms, 20 * HOUR_US, 0, young)[1] == Outlook(
        "the time since the first grant", 1_000, now_ms + 20 * HOUR_MS
    )


def day(number: int, balance: int | None, charged: int, got: int, entitled: int) -> dict[str, Any]:
    at_ms = START_MS + number * DAY_MS
    return {
        "day_ms": at_ms, "until_ms": at_ms + DAY_MS, "balance_gpu_us": balance, "charged_gpu_us": charged, "refunded_gpu_us": 0,
        "posted_gpu_us": 0, "got_ppm": got, "entitled_ppm": entitled,
    }  # fmt: skip


@pytest.mark.parametrize("metered", [True, False])
def test_the_picture_is_whole_self_contained_and_says_its_numbers(metered: bool) -> None:
    days = [day(n, (10 - n) * HOUR_US, HOUR_US, 300_000 + n, 350_000) for n in range(5)]
    end = Outlook("now", 1_000, START_MS + 15 * DAY_MS)

    text = chart("Balance of lab/<a> & co", days, [end], "as of seq 9", metered=metered)

    root = ElementTree.fromstring(text)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names <= {"svg", "title", "desc", "style", "text", "line", "path", "polyline"}
    assert root.attrib["role"] == "img"
    described = next(element.text or "" for element in root.iter() if element.tag.endswith("desc"))
    assert ("2026-01-05: balance 6.0 GPU-h" if metered else "2026-01-05: got 30.0 %, entitled to 35.0 %") in described
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|script|url\(", text)
    numbers = [
        float(number) for points in re.findall(r'points="([^"]*)"', text) for number in re.findall(r"[\d.]+", points)
    ]
    assert all(0 <= number <= 720 for number in numbers)
    assert len(re.findall(r'class="bar"', text)) == 5
