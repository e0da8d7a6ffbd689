"""Values as people read them: exact integers in, rounded text out, columns that add up, no control characters."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.text import render
from apportion.core.units import GPU_US_PER_GPU_HOUR

amounts = st.integers(min_value=0, max_value=1 << 58)


@pytest.mark.parametrize(
    ("gpu_us", "expected"),
    [
        (0, "0.0"), (GPU_US_PER_GPU_HOUR, "1.0"), (GPU_US_PER_GPU_HOUR // 20, "0.1"),
        (GPU_US_PER_GPU_HOUR // 20 - 1, "0.0"), (1_234_567 * GPU_US_PER_GPU_HOUR, "1,234,567.0"),
        (-GPU_US_PER_GPU_HOUR // 2, "-0.5"),
    ],
)  # fmt: skip
def test_gpu_hours_have_one_decimal(gpu_us: int, expected: str) -> None:
    assert expected == render.gpu_hours(gpu_us)


@given(st.lists(amounts, min_size=1, max_size=30))
def test_a_column_of_gpu_hours_adds_up_to_its_shown_total(values: list[int]) -> None:
    shown = [int(text.replace(",", "").replace(".", "")) for text in render.gpu_hours_column(values)]

    assert sum(shown) == int(render.gpu_hours(sum(values)).replace(",", "").replace(".", ""))
    for tenths, value in zip(shown, values, strict=True):
        assert abs(tenths * GPU_US_PER_GPU_HOUR - value * 10) < GPU_US_PER_GPU_HOUR * 2


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (1, ("node",), "1 node"), (0, ("node",), "0 nodes"), (1_024, ("node",), "1,024 nodes"),
        (1, ("job waits", "jobs wait"), "1 job waits"), (2, ("job waits", "jobs wait"), "2 jobs wait"),
    ],
)  # fmt: skip
def test_words_agree_with_their_count(count: int, words: tuple[str, ...], expected: str) -> None:
    assert expected == render.many(count, *words)


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0s"), (999, "999ms"), (500, "0.5s"), (3_200, "3.2s"), (60_000, "1m"), (61_000, "1m 1s"), (3_600_000, "1h"),
        (7_500_000, "2h 5m"), (97_200_000, "1d 3h"), (86_400_000 + 5_000, "1d"), (-60_000, "-1m"),
    ],
)  # fmt: skip
def test_durations_show_two_units(ms: int, expected: str) -> None:
    assert expected == render.duration(ms)


def test_instants_are_utc_and_never_the_wall_clock() -> None:
    assert render.when(1_700_000_000_000) == "2023-11-14 22:13:20Z"
    assert render.when(1_700_000_000_999) == "2023-11-14 22:13:20Z"
    assert render.when(0) == "-"
    assert render.iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize(("milli", "expected"), [(1000, "1 GPU"), (500, "0.5 GPU"), (8000, "8 GPUs"), (0, "0 GPUs")])
def test_gpus(milli: int, expected: str) -> None:
    assert expected == render.gpus(milli)


@pytest.mark.parametrize(("ppm", "expected"), [(350_000, "35.0 %"), (1_000_000, "100.0 %"), (1, "0.0 %"), (0, "0.0 %")])
def test_percent(ppm: int, expected: str) -> None:
    assert expected == render.percent(ppm)


@given(st.text())
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    out = io.StringIO()

    render.write_table(out, ["name", "budget"], [{"name": text, "budget": f"[bold]{text}"}])

    body = out.getvalue()
    assert "\x1b" not in body
    assert not any(ord(char) < 32 and char != "\n" for char in body)


def test_names_in_brackets_are_no_markup() -> None:
    out = io.StringIO()

    render.write_table(out, ["name"], [{"name": "run[red]x[/red]"}])

    assert "run[red]x[/red]" in out.getvalue()


def test_a_pipe_is_never_wrapped_and_a_terminal_never_exceeded() -> None:
    rows = [{"workload": "w" * 30, "gpus_milli": 2000, "why": "because of this and that " * 10}]
    pipe, terminal = io.StringIO(), io.StringIO()

    render.write_table(pipe, ["workload", "gpus_milli", "why"], rows)
    render.write_table(terminal, ["workload", "gpus_milli", "why"], rows, width=80)

    assert len(pipe.getvalue().splitlines()) == 2
    assert max(len(line) for line in terminal.getvalue().splitlines()) <= 80


def test_csv_keeps_integers_and_json_keeps_everything() -> None:
    row = {"workload": 'a,"b', "gpu_us": 123_456_789_012_345, "gpus": [1, 2], "ended_ms": None, "closed": True}

    parsed = next(csv.DictReader(io.StringIO(render.csv_text(list(row), [row]))))

    assert parsed == {
        "workload": 'a,"b',
        "gpu_us": "123456789012345",
        "gpus": "[1,2]",
        "ended_ms": "",
        "closed": "true",
    }
    assert json.loads(render.json_text({"rows": [row]})) == {"rows": [row]}


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no field 'gpu' here; the fields are workload, gpus_milli"):
        render.pick([{"workload": "w", "gpus_milli": 1}], ["gpu"], ["workload", "gpus_milli"])
