"""The pictures of a what-if: who held how many GPUs over time in both worlds, and how long jobs waited in both.

Pure functions of a difference. Dashed is history, solid is the what-if.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apportion.adapters.charts.svg import COLOURS, REST, Picture
from apportion.adapters.charts.waits import axes
from apportion.adapters.comparing.waits import kaplan_meier
from apportion.adapters.text import render
from apportion.adapters.whatif.difference import Difference
from apportion.adapters.whatif.measures import Measured, Spell
from apportion.core.units import MS_PER_DAY, MS_PER_HOUR

SHOWN = 5  # budgets with a line of their own
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 960, 120, 64, 40, 112, 44
WORDS_MAX = 140  # letters of a line of notes
BUCKETS = 160


def held(found: Difference) -> str:
    """Return a panel per budget that changed most: GPUs held over time."""
    before, after = found.before, found.after
    names = _changed_most(found)[:SHOWN]
    height = TOP + len(names) * (PANEL + GAP)
    picture = Picture(WIDTH, height, "GPUs held over time, history and what-if")
    _heading(picture, "GPUs held over time", found)
    picture.text((WIDTH - RIGHT, 72), "budgets whose GPU time changed most first", anchor="end", css="note")
    for number, name in enumerate(names):
        series = [_series(one, [spell for spell in one.spells if spell.budget == name]) for one in (before, after)]
        _panel(picture, before, name, series, TOP + number * (PANEL + GAP), COLOURS[number % len(COLOURS)])
    return picture.render()


def _heading(picture: Picture, title: str, found: Difference) -> None:
    words = "; ".join(found.words)
    picture.text((LEFT, 30), title, css="title")
    picture.text((LEFT, 50), words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 3] + "...", css="note")
    for name, shade, dash, at in (("history", REST, "4 4", LEFT), ("what if", COLOURS[0], "", LEFT + 110)):
        picture.curve([(at, 68), (at + 26, 68)], shade, dash=dash)
        picture.text((at + 34, 72), name)


def _changed_most(found: Difference) -> list[str]:
    def got(one: Measured, name: str) -> int:
        account = one.accounts.get(name)
        return account.funded_gpu_us + account.unfunded_gpu_us if account is not None else 0

    names = {**found.before.accounts, **found.after.accounts}
    return sorted(names, key=lambda name: (-abs(got(found.after, name) - got(found.before, name)), name))


def _series(one: Measured, spells: Sequence[Spell]) -> list[float]:
    """Return the GPUs held in each bucket of the range, on average."""
    length_ms = max(1, one.to_ms - one.from_ms)
    width_ms = length_ms / BUCKETS
    held_ms = [0.0] * (BUCKETS + 1)
    for spell in spells:
        first = int((spell.from_ms - one.from_ms) / width_ms)
        for bucket in range(max(0, first), BUCKETS):
            low, high = one.from_ms + bucket * width_ms, one.from_ms + (bucket + 1) * width_ms
            if low >= spell.to_ms:
                break
            held_ms[bucket] += max(0.0, min(high, spell.to_ms) - max(low, spell.from_ms)) * spell.gpus_milli / 1_000
    return [amount / width_ms for amount in held_ms[:BUCKETS]]


def _panel(picture: Picture, one: Measured, name: str, series: Sequence[Sequence[float]], above: float, colour: str) -> None:
    top = max(1.0, *(max(values, default=0.0) for values in series)) * 1.05
    below, right = above + PANEL, WIDTH - RIGHT

    def x(at_ms: float) -> float:
        return LEFT + (right - LEFT) * (at_ms - one.from_ms) / max(1, one.to_ms - one.from_ms)

    def y(gpus: float) -> float:
        return below - PANEL * gpus / top

    for part in (0.0, 0.5, 1.0):
        value = top / 1.05 * part
        picture.line((LEFT, y(value)), (right, y(value)), "grid")
        picture.text((LEFT - 8, y(value) + 4), f"{value:.0f}", anchor="end")
    step_ms = _step_ms(one.to_ms - one.from_ms)
    at_ms = -(-one.from_ms // step_ms) * step_ms
    while at_ms <= one.to_ms:
        picture.line((x(at_ms), below), (x(at_ms), below + 4))
        picture.text((x(at_ms), below + 17), render.when(at_ms)[5:16], anchor="middle", css="note")
        at_ms += step_ms
    picture.line((LEFT, below), (right, below))
    sums = [sum(values) * (one.to_ms - one.from_ms) / BUCKETS / MS_PER_HOUR for values in series]
    picture.text((LEFT, above - 8), name, css="panel")
    picture.text((right, above - 8), f"GPU-h {sums[0]:,.0f} -> {sums[1]:,.0f}", anchor="end", css="note")
    for values, shade, width, dash in ((series[0], REST, 1.6, "4 4"), (series[1], colour, 2.0, "")):
        points = [(x(one.from_ms + (place + 0.5) * (one.to_ms - one.from_ms) / BUCKETS), y(v)) for place, v in enumerate(values)]
        picture.curve(points, shade, width=width, dash=dash)


def _step_ms(length_ms: int) -> int:
    for hours in (1, 3, 6, 12, 24, 48, 96, 168):
        if length_ms / (hours * MS_PER_HOUR) <= 8:
            return hours * MS_PER_HOUR
    return 14 * MS_PER_DAY


def waits(found: Difference) -> str:
    """Return the part of the jobs submitted in the range that started within a time, in both worlds; logarithmic."""
    height = 436
    picture = Picture(WIDTH, height, "Waiting time to the first start, history and what-if")
    _heading(picture, "Waiting time to the first start", found)
    length_ms = found.before.to_ms - found.before.from_ms
    x, y, last_ms = axes(picture, LEFT, WIDTH - RIGHT, 96.0, height - 56.0, length_ms)
    for one, shade, dash in ((found.before, REST, "4 4"), (found.after, COLOURS[0], "")):
        ended = [wait_ms for wait_ms, is_open in one.waited if not is_open]
        still = [wait_ms for wait_ms, is_open in one.waited if is_open]
        shown = [step for step in kaplan_meier(ended, still) if step[0] <= last_ms]
        picture.curve([(x(wait_ms), y(ppm)) for wait_ms, ppm in shown[:: max(1, len(shown) // 400)]], shade, dash=dash)
    return picture.render()


PICTURES: dict[str, Callable[[Difference], str]] = {"held.svg": held, "waits.svg": waits}
