"""Every decision is a sentence, every sentence has its numbers, and what does not fit is dropped in the agreed order."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from apportion.adapters.cli import telling
from apportion.adapters.cli.failure import STALE, Failure, usage
from apportion.adapters.cli.output import Answer, AsOf, Format, Section, show, show_failure
from apportion.adapters.cli.verbs import ReadPlace, finish
from apportion.adapters.processes.home import Home
from apportion.adapters.text import render
from apportion.core.decisions import AnyDecision
from apportion.core.envelope import encode
from apportion.core.events import WorkloadSubmitted

GOLDEN = Path(__file__).parents[1] / "golden"


def _samples() -> list[Any]:
    """Return one decision of every type, from the golden batches."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(GOLDEN.glob("batches/*.json")):
        batch = json.loads(path.read_text())
        for decision in batch["decisions"]:
            found.setdefault(decision["type"], {**decision, "time_ms": batch["time_ms"]})
    return [pytest.param(decision, id=name) for name, decision in sorted(found.items())]


SAMPLES = _samples()


def test_there_is_a_sample_of_every_decision_that_cores_write() -> None:
    written = {str(one.__struct_config__.tag) for one in get_args(AnyDecision)}

    assert written <= {str(sample.id) for sample in SAMPLES}


@pytest.mark.parametrize("decision", SAMPLES)
def test_every_decision_is_told_in_sentences(decision: dict[str, Any]) -> None:
    lines = telling.decision_lines("job-1", decision)

    assert lines
    for line in lines:
        assert not re.search(r"[{}]|_milli|_gpu_us|None", re.sub(r"\(field \w+\)", "", line)), line
        assert line.isprintable()
    assert lines[0].startswith(("job-1: ", "node "))


@pytest.mark.parametrize("decision", SAMPLES)
def test_fields_left_out_because_they_are_defaults_are_no_problem(decision: dict[str, Any]) -> None:
    kinds = {str(one.__struct_config__.tag): one for one in get_args(AnyDecision)}
    struct = msgspec.convert({**decision}, kinds[decision["type"]])

    assert telling.decision_lines("job-1", {**json.loads(encode(struct)), "type": decision["type"], "time_ms": 1})


def test_a_decision_of_a_newer_core_is_shown_as_it_is() -> None:
    assert telling.decision_lines("x", {"type": "run.cloned", "to": "n2"}) == [
        'x: run.cloned {"type":"run.cloned","to":"n2"}'
    ]


def test_gpus_are_told_as_spans() -> None:
    assert telling.piece_words({"node": "n1", "gpus": [0, 1, 2, 5, 7, 6], "milli_each": 1000}) == "n1 GPUs 0-2,5-7"
    assert telling.piece_words(["n1", [3], 250]) == "n1 GPU 3 (0.25 GPU of it)"


def _shown(section: Section, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    show(Answer([section]), Format(), out, io.StringIO())
    return out.getvalue().splitlines()


def test_columns_leave_in_the_agreed_order_and_text_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"job": "j" * 20, "user": "u" * 20, "age_ms": 61_000, "why": "because of that and of this too"}
    section = Section([row], list(row), drop=("age_ms", "user"))

    wide, middle, narrow = (_shown(section, width, monkeypatch) for width in (90, 70, 50))

    assert wide[0].split() == ["JOB", "USER", "AGE", "WHY"]
    assert middle[0].split() == ["JOB", "USER", "WHY"]
    assert narrow[0].split() == ["JOB", "WHY"]
    for lines, width in ((wide, 90), (middle, 70), (narrow, 50)):
        assert max(map(len, lines)) <= width
        assert "".join(line[-40:] for line in lines).replace(" ", "").count("j") <= 20
    assert [word for line in narrow[1:] for word in line.split()] == [row["job"], *str(row["why"]).split()]


def test_sentences_keep_numbers_and_units_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()

    show(Answer(lines=["  it holds exactly and only as much as 35.0 % of all 512 GPUs there are"]), Format(), out)

    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert not any(line.endswith(("35.0", "512")) for line in lines)
    assert [len(line) - len(line.lstrip()) for line in lines] == [2, *[4] * (len(lines) - 1)]


def test_data_goes_to_stdout_and_freshness_to_stderr() -> None:
    answer = Answer([Section([{"n": 1}], ["n"])], as_of=AsOf(184_202, 1_700_000_000_000, 3))
    out, err = io.StringIO(), io.StringIO()

    show(answer, Format(), out, err)

    assert out.getvalue() == "N\n1\n"
    assert err.getvalue() == "as of seq 184,202, time 2023-11-14T22:13:20.000Z, lag 3\n"


def test_a_document_of_ones_own_carries_it_too_unless_it_says_itself() -> None:
    for document, expected in (({"n": 1}, 2), ({"n": 1, "as_of": {"seq": 7}}, 7)):
        out = io.StringIO()
        show(Answer(document=document, as_of=AsOf(2, 1_000)), Format(as_json=True), out, io.StringIO())
        assert json.loads(out.getvalue())["as_of"]["seq"] == expected
        assert json.loads(out.getvalue())["n"] == 1
        assert list(document) in (["n"], ["n", "as_of"]), "what was given is left as it was"


def test_a_document_carries_its_freshness_itself() -> None:
    out, err = io.StringIO(), io.StringIO()

    show(Answer([Section([{"n": 1}], ["n"])], as_of=AsOf(2, 1_000, 3, 40)), Format(as_json=True), out, err)

    assert json.loads(out.getvalue()) == {
        "as_of": {"seq": 2, "time_ms": 1_000, "time": "1970-01-01T00:00:01.000Z", "lag": 3, "lag_ms": 40},
        "rows": [{"n": 1}],
    }
    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("lag", "lag_ms", "limit", "stale"), [(5, 3_000, 2.0, True), (5, 3_000, 4.0, False), (0, 0, 0.0, False)]
)
def test_data_older_than_asked_for_is_shown_and_then_refused(lag: int, lag_ms: int, limit: float, stale: bool) -> None:
    place = ReadPlace(Home.of("."), max_lag_s=limit)
    answer = Answer(lines=["the data"], as_of=AsOf(9, 1, lag, lag_ms))

    if not stale:
        assert finish(answer, place) == 0
        return
    with pytest.raises(Failure) as caught:
        finish(answer, place)
    assert caught.value.code == STALE
    assert "3.0 s (5 records) behind" in caught.value.what


def test_failures_say_what_and_what_to_do() -> None:
    text, document = io.StringIO(), io.StringIO()

    show_failure(usage("'x' is no share", "write 35%"), as_json=False, err=text)
    show_failure(usage("'x' is no share", "write 35%"), as_json=True, err=document)

    assert text.getvalue() == "error: 'x' is no share\n  try: write 35%\n"
    assert json.loads(document.getvalue()) == {
        "error": {"code": 2, "kind": "usage", "what": "'x' is no share", "do": "write 35%"}
    }


def test_an_empty_table_tells_the_next_command() -> None:
    out = io.StringIO()

    show(Answer([Section([], ["n"], empty="nothing yet; start with `apportion up`")]), Format(), out)

    assert out.getvalue() == "nothing yet; start with `apportion up`\n"


def test_totals_are_sums_of_what_is_shown() -> None:
    rows = [{"who": f"u{n}", "gpu_us": 1_200_000_001 * (n + 1)} for n in range(7)]
    out = io.StringIO()

    render.write_table(out, ["who", "gpu_us"], rows, total={"who": "total", "gpu_us": sum(r["gpu_us"] for r in rows)})

    shown = [float(line.split()[-1]) for line in out.getvalue().splitlines()[1:]]
    assert round(sum(shown[:-1]), 1) == shown[-1]


@pytest.mark.parametrize(
    ("event", "reason", "field", "numbers", "said"),
    [
        ({"pools": ("moon", "sun")}, "unknown_pool", "pools", {}, "there is no pool moon, sun (--pools)"),
        ({"budget": "lab"}, "budget_not_leaf", "budget", {}, "budget lab has budgets below it, and workloads charge leaves only"),
        ({}, "duplicate", "workload", {}, "w exists already"),
        ({}, "bad_shape", "gpus_milli", {"node_milli": 8_000}, "whole nodes, of 8 GPUs each (--gpus_milli)"),
        (
            {}, "never_fits", "labels", {"nodes_able": 0, "nodes_needed": 1, "largest_node_milli": 0, "largest_milli": 0},
            "no pool named has, or ever had, nodes for this shape (--labels)",
        ),
        (
            {}, "never_fits", "gpus_milli", {"nodes_able": 1, "nodes_needed": 2, "largest_node_milli": 8_000},
            "it needs 2 such nodes of 1 there are; the largest node has 8 GPUs",
        ),
    ],
)  # fmt: skip
def test_the_refusal_of_a_submission_names_what_was_asked_for(
    event: dict[str, Any], reason: str, field: str, numbers: dict[str, int], said: str
) -> None:
    asked = WorkloadSubmitted(**{"workload": "w", "budget": "b", "pools": ("p",), "gpus_milli": 9_000, **event})
    detail = "not a multiple of whole nodes" if reason == "bad_shape" else ""
    decision = {"type": "workload.rejected", "reason": reason, "field": field, "detail": detail, "numbers": numbers}

    sentence, _action = telling.refusal_words(decision, {field: f"--{field}"}, telling.named_in(asked))

    assert said in sentence
    assert not re.search(r"\b0 (GPUs|there)", sentence)
