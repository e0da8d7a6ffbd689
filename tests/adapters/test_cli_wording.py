"""Every reason has a sentence that reads well with and without its numbers."""

from __future__ import annotations

import inspect
import re
from enum import Enum

import pytest

from apportion.adapters.text import template, wording
from apportion.core import reasons
from apportion.core.reasons import Funding, Pending, Refusal

ALL_ENUMS = [
    value
    for value in vars(reasons).values()
    if inspect.isclass(value) and issubclass(value, Enum) and value is not Enum and value.__module__ == reasons.__name__
]
ALL_REASONS = [
    pytest.param(reason, id=f"{type(reason).__name__}.{reason.name}") for enum in ALL_ENUMS for reason in enum
]
NUMBERS = {name: 8_000 for table in wording.WORDS.values() for words in table.values()
           for name in re.findall(r"\{(\w+)", words.sentence + words.action)}  # fmt: skip


def test_every_enum_of_the_core_is_in_the_table() -> None:
    assert set(ALL_ENUMS) == set(wording.WORDS) == set(wording.ENUMS.values())


@pytest.mark.parametrize("reason", ALL_REASONS)
@pytest.mark.parametrize("numbers", [{}, NUMBERS], ids=["bare", "with numbers"])
def test_every_reason_reads_as_a_sentence(reason: Enum, numbers: dict[str, int]) -> None:
    sentence, action = wording.words(reason, numbers)

    assert len(sentence) > 10
    for text in (sentence, action):
        assert not re.search(r"[{}\[\]?]|  |^[^\w`]|\s$| [,;:)]", text), text
        assert not text.endswith((".", ":", ";"))


@pytest.mark.parametrize("enum", [enum for enum in ALL_ENUMS if enum in (Refusal, Pending)])
def test_what_stops_somebody_comes_with_something_to_do(enum: type[Enum]) -> None:
    assert all(wording.words(reason)[1] for reason in enum)


def test_equal_values_of_different_enums_have_their_own_words() -> None:
    assert Refusal.BUDGET_CLOSED == Funding.BUDGET_CLOSED
    assert wording.words(Refusal.BUDGET_CLOSED) != wording.words(Funding.BUDGET_CLOSED)


def test_numbers_take_the_unit_of_their_name() -> None:
    sentence, _action = wording.words(Pending.NO_FREE_GPUS, {"need_milli": 64_000, "free_milli": 500})

    assert sentence == "fewer GPUs are free than it needs: it needs 64 GPUs, free 0.5 GPU"


def test_actions_name_verbs_that_exist() -> None:
    from apportion.adapters.cli.main import command

    known = set(command().commands)  # type: ignore[attr-defined]  # groups have commands
    named = {
        found
        for table in wording.WORDS.values()
        for words in table.values()
        for found in re.findall(r"`apportion (\w+)", words.action)
    }

    assert named <= known


def test_a_value_of_a_newer_core_is_shown_as_stored() -> None:
    sentence, action = wording.words_of("pending", "swap_cap", {"need_milli": 1})

    assert sentence == "swap_cap"
    assert "upgrade" in action


@pytest.mark.parametrize("reason", ALL_REASONS)
def test_what_is_one_reads_as_one(reason: Enum) -> None:
    """Of one node, one workload, one GPU no verb and no noun is in the plural."""
    ones = {name: 1_000 if name.endswith("_milli") else 1 for name in NUMBERS if name not in ("need_milli", "free_milli")}
    for text in wording.words(reason, {**ones, "need_milli": 1_000, "free_milli": 1_000}):
        assert not re.search(r"\b1 (GPU |such )?(nodes|runs|GPUs|are|were|have|go|come|of its budget go|of it run)\b", text), text


def test_words_agree_with_their_number() -> None:
    sentence = "{count:node is|nodes are} there[; {left_milli:is|are} free]"

    assert template.fill(sentence, {"count": 1}) == "1 node is there"
    assert template.fill(sentence, {"count": 0, "left_milli": 500}) == "0 nodes are there; 0.5 GPU is free"
    assert template.fill(sentence, {"count": 1_024, "left_milli": 2_000}) == "1,024 nodes are there; 2 GPUs are free"
