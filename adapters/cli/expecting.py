"""When a job is expected to start, on what that rests, and how what was told before has held.

In this order: what the core itself knows (a reservation, a plan, stated ends), then how long others of its budget and size waited
that had waited as long, then nothing: no date is made up. A pure function of answers; asks the projector, decides nothing.
"""

from __future__ import annotations

from typing import Any

from apportion.adapters.cli.asking import Opened
from apportion.adapters.text import render
from apportion.core.units import MS_PER_DAY

LIKE_IT_MIN = 5  # jobs like it that must have started before their waits say anything
SINCE_MS = 28 * MS_PER_DAY
BASES = {
    "reservation": "nodes are reserved for it, and that is when the runs there are over by what is known of them",
    "plan": "so it is planned",
    "runs": "it is next, and that is when the runs in its way are over by what they state",
    "stops": "the runs on its GPUs have until then to go",
}


async def expectation(
    source: Opened, workload: dict[str, Any], waits_since_ms: int, at_seq: int, at_ms: int, core: dict[str, Any] | None
) -> dict[str, Any]:
    """Return ``start_ms`` (None: not known), ``basis``, and ``past``: how past estimates of its budget held, a row per basis."""
    since_ms = max(0, at_ms - SINCE_MS)
    past = (await source.ask("estimates", budget=workload["budget"], since_ms=since_ms, seq=at_seq)).rows
    if core is not None:
        return {**core, "past": past}
    waited_ms = max(0, at_ms - waits_since_ms)
    like = await source.ask(
        "waited", budget=workload["budget"], gpus_milli=workload["gpus_milli"], waited_ms=waited_ms, since_ms=since_ms, seq=at_seq
    )
    row = like.first or {}
    if (row.get("started") or 0) < LIKE_IT_MIN:
        return {"start_ms": None, "basis": "nothing", "like_it": row.get("started") or 0, "past": past}
    return {
        "start_ms": at_ms + row["p50_more_ms"], "by_ms": at_ms + row["p90_more_ms"], "basis": "waits", "like_it": row["started"],
        "still_waiting": row["waiting"], "waited_ms": waited_ms, "past": past,
    }  # fmt: skip


def lines_of(expected: dict[str, Any], budget: str) -> list[str]:
    """Return it in sentences."""
    basis = expected["basis"]
    if basis == "waits":
        told = (
            f"  expected to start: the core knows of no date; of {expected['like_it']:,} jobs of {budget} and this size that "
            f"waited as long, half would have started by {render.when(expected['start_ms'])}, and 9 of 10 by "
            f"{render.when(expected['by_ms'])}"
        )
        lines = [told + (f" ({expected['still_waiting']:,} still wait)" if expected["still_waiting"] else "")]
    elif basis == "nothing":
        few = expected["like_it"]
        seen = "no job" if not few else f"only {render.many(few, 'job')}"
        lines = [f"  expected to start: nothing says when; nothing is reserved or planned for it, and {seen} of {budget} and this "
                 "size waited as long and then started"]  # fmt: skip
    else:
        guessed = expected.get("guessed") or 0
        who = "1 of them states no end, and is" if guessed == 1 else f"{guessed} of them state no end, and are"
        guess = f" (a guess: {who} taken to run for a day)" if guessed else ""
        lines = [f"  expected to start by {render.when(expected['start_ms'])}: {BASES[basis]}{guess}"]
    return lines + [past_words(row, budget) for row in expected["past"]]


def past_words(row: dict[str, Any], budget: str) -> str:
    """Return how the estimates of one basis held."""
    settled = row["started"] + row["overdue"]
    what = f"by {row['basis']}"
    if not settled:
        return f"  past estimates {what} for {budget}: {row['told']:,} told, none is due yet"
    late_ms = row["median_late_ms"]
    off = ""
    if row["started"]:
        off = f"; the median is {render.duration(abs(late_ms))} {'late' if late_ms > 0 else 'early'}"
    overdue = f", {render.many(row['overdue'], 'still waits', 'still wait')}" if row["overdue"] else ""
    return (
        f"  past estimates {what} for {budget}: {row['in_time']:,} of {settled:,} started by what they were told first "
        f"({render.percent(row['in_time'] * 1_000_000 // settled)}){overdue}{off}"
    )
