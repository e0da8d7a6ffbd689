"""Templates of sentences: places for numbers, each in the unit that its name states, and parts that may be left out.

A template names numbers as ``{need_milli}``; the suffix of the name chooses the unit. ``{nodes_able:node|nodes}`` is followed by
the words that go with one or with more. A part in square brackets is left out when one of its numbers is absent, so an old
decision with fewer numbers still reads well. Pure functions; which sentences there are is told in ``wording`` and by who else asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from apportion.adapters.text.render import DURATION_NAMES, duration, gpu_count, gpu_hours, gpus, percent, when

_BARE = {"weight_milli", "traffic_milli"}  # thousandths of no GPU
_DURATIONS = {"timeout_ms", "limit_ms", "late_ms"}
_PLACE = re.compile(r"\{(\w+)(?::([^{}|]+)\|([^{}|]+))?\}")
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


def number_words(name: str, value: int | str) -> str:
    """Return a number in the unit its name states: GPUs, GPU-hours, percent, instant or duration."""
    if isinstance(value, str):
        return value
    if name in _BARE:
        return gpu_count(value)
    if name.endswith("_milli"):
        return gpus(value)
    if name == "gpu_us" or name.endswith("_gpu_us"):
        return f"{gpu_hours(value)} GPU-h"
    if name.endswith("_ppm"):
        return percent(value)
    if name.endswith("_ms"):
        return duration(value) if name in _DURATIONS or name in DURATION_NAMES else when(value)
    return f"{value:,}"


def fill(template: str, numbers: Mapping[str, int | str]) -> str:
    """Put the numbers in; drop bracketed parts that lack one."""

    def place(text: str) -> str:
        return _PLACE.sub(lambda found: _placed(found[1], found[2], found[3], numbers.get(found[1], "?")), text)

    def optional(found: re.Match[str]) -> str:
        return place(found[1]) if all(_present(name[1], numbers) for name in _PLACE.finditer(found[1])) else ""

    return re.sub(r" {2,}", " ", place(_OPTIONAL.sub(optional, template))).strip()


def _placed(name: str, one: str | None, more: str | None, value: int | str) -> str:
    """Return a number, and after it the words of the template that agree with it, if it has any."""
    said = number_words(name, value)
    if one is None or more is None:
        return said
    single = value in (1, "1") if not name.endswith("_milli") else isinstance(value, int) and 0 < value <= 1_000
    return f"{said} {one if single else more}"


def _present(name: str, numbers: Mapping[str, int | str]) -> bool:
    return name in numbers and numbers[name] != ""
