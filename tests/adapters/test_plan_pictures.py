"""A plan as text and as a picture: all of it is shown, within its width and its frame, whatever the plan."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.charts import plan as plan_picture
from apportion.adapters.charts.gantt import LEAST_WIDTH, gantt

Row = dict[str, Any]
START_MS = 1_767_225_600_000
SVG = "{http://www.w3.org/2000/svg}"
quick = settings(derandomize=True, deadline=None, max_examples=60)
names = st.text("abcdefgh-0123456789", min_size=1, max_size=40)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Row, list[Row], list[Row]]:
    """A plan, its jobs in order of start, its services by step; blocks may overlap, which is not for pictures to judge."""
    steps, gpus = draw(st.integers(1, 200)), draw(st.sampled_from((1, 8, 64, 1_024)))
    step_ms = draw(st.sampled_from((60_000, 1_800_000, 14_400_000)))
    plan = {
        "plan": "p.7", "pool": "p", "steps": steps, "gpus": gpus, "step_ms": step_ms, "from_ms": START_MS, "time_ms": START_MS,
        "until_ms": START_MS + steps * step_ms,
    }  # fmt: skip
    jobs = []
    for name in draw(st.lists(names, max_size=8, unique=True)):
        size = draw(st.sampled_from([1 << power for power in range(11) if 1 << power <= gpus]))
        start = draw(st.integers(-1, steps - 1))
        length = draw(st.integers(1, 300)) if start >= 0 else 0
        jobs.append({
            "workload": name, "budget": draw(st.sampled_from(("a", "b&c"))), "gpus": size, "gpus_milli": size * 1_000,
            "first": draw(st.integers(0, gpus // size - 1)) * size if start >= 0 else -1, "start": start, "steps": length,
            "start_ms": START_MS + start * step_ms if start >= 0 else None,
            "end_ms": START_MS + (start + length) * step_ms if start >= 0 else None,
        })  # fmt: skip
    jobs.sort(key=lambda row: (row["start"] < 0, row["start"]))
    services = [
        {"workload": name, "step": step, "held": draw(st.integers(0, gpus)), "needs": draw(st.integers(0, gpus))}
        for name in draw(st.lists(names, max_size=2, unique=True))
        for step in range(steps)
    ]
    return plan, jobs, services


@quick
@given(plans(), st.integers(20, 160))
def test_text_shows_every_job_and_service_within_the_width(drawn: tuple[Row, list[Row], list[Row]], width: int) -> None:
    plan, jobs, services = drawn
    lines = gantt(plan, jobs, services, width).splitlines()

    assert max(map(len, lines)) <= max(width, LEAST_WIDTH)
    for row in [*jobs, *services]:
        assert any(line.split()[:1] == [row["workload"]] for line in lines), "names are never cut"
    bars = [line for line in lines if "job" not in line.split()[:1]]
    for row in jobs:
        if row["start"] >= 0 and row["start"] + row["steps"] > plan["steps"]:
            assert any(line.endswith("#>") for line in bars)


def test_text_is_drawn_to_scale() -> None:
    plan = {"steps": 48, "step_ms": 1_800_000, "from_ms": START_MS}
    jobs = [
        {"workload": "one", "gpus": 4, "gpus_milli": 3_000, "start": 0, "steps": 2},
        {"workload": "two", "gpus": 8, "gpus_milli": 8_000, "start": 3, "steps": 60},
        {"workload": "six", "gpus": 0, "gpus_milli": 500, "start": -1, "steps": 0},
    ]
    held = [0, 1, 2, 2] + [0] * 44
    needs = [2] * 4 + [0] * 44
    services = [{"workload": "chat", "step": step, "held": held[step], "needs": needs[step]} for step in range(48)]
    lines = gantt(plan, jobs, services, 80).splitlines()

    assert lines[0].split() == ["00:00", "04:00", "08:00", "12:00", "16:00", "20:00"]
    at = lines[0].index("00:00")
    assert [line[at:] for line in lines[1:3]] == ["..##", ".###"]
    assert [line[:at].split() for line in lines[1:3]] == [["chat", "2"], ["1"]]
    assert [line[:at].split() for line in lines[5:]] == [["one", "3", "now"], ["two", "8", "+1h", "30m"], ["six", "0.5", "late"]]
    assert [line[at:] for line in lines[5:]] == ["##", "   " + "#" * 45 + ">", ""]


@quick
@given(plans())
def test_the_picture_is_whole_and_inside_its_frame(drawn: tuple[Row, list[Row], list[Row]]) -> None:
    plan, jobs, services = drawn
    text = plan_picture.chart(plan, jobs, services)
    root = ElementTree.fromstring(text)
    _x, _y, width, height = (int(number) for number in root.attrib["viewBox"].split())
    blocks = root.findall(f"{SVG}rect")
    told = root.findtext(f"{SVG}desc") or ""

    assert text == plan_picture.chart(plan, jobs, services)
    assert len(blocks) == sum(row["start"] >= 0 for row in jobs)
    for block in blocks:
        x, y, wide, tall = (float(block.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= plan_picture.LEFT
        assert x + wide <= width - plan_picture.RIGHT + 0.1
        assert y >= plan_picture.TOP - 0.1
        assert y + tall <= min(height, plan_picture.TOP + plan_picture.LINE_HEIGHT) + 0.1
    for row in jobs:
        assert row["workload"] in told
    assert len(root.findall(f"{SVG}polygon")) == bool(services)
    assert told.count("services need") == (plan["steps"] if services else 0)
