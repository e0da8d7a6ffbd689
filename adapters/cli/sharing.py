"""``share``: what each budget is guaranteed, entitled to now, owed, allowed, runs and waits for, with the arithmetic.

What was used comes from the projection; entitlements and allowances come from the core's own function on its state at the
same sequence (``adapters.seen.standing``). Nothing is worked out here but the guarantee, a share of the GPUs in service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.cores import core_if_readable
from apportion.adapters.cli.finding import budget_of
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.reads import PANEL, Pool, given, without_constant
from apportion.adapters.cli.verbs import ReadPlace, read_verb
from apportion.adapters.seen import arithmetic
from apportion.adapters.text.render import gpu_count
from apportion.core.units import PPM

if TYPE_CHECKING:
    from apportion.core.engine import Core

BAR = 12
_WITHOUT = "what budgets are allowed now needs the log, which cannot be read here"
COLUMNS = (
    "pool", "budget", "guaranteed_milli", "entitled_milli", "lag_gpu_us", "allowance_milli", "runs_protected_milli",
    "runs_funded_milli", "runs_unfunded_milli", "pending_milli", "got_of_used_ppm", "bar",
)  # fmt: skip
CORES = (
    "guaranteed_milli", "entitled_milli", "lag_gpu_us", "allowance_milli", "runs_protected_milli", "runs_funded_milli",
    "runs_unfunded_milli",
)  # fmt: skip
HEADINGS = {
    "guaranteed_milli": "guaranteed", "entitled_milli": "entitled", "lag_gpu_us": "owed h", "allowance_milli": "allowed",
    "runs_protected_milli": "prot.", "runs_funded_milli": "funded", "runs_unfunded_milli": "unfund.", "pending_milli": "waits",
    "got_of_used_ppm": "got", "bar": "got | share",
}  # fmt: skip
LEGEND = (
    "GPUs now: guaranteed, entitled (what others do not ask for flows on), allowed (entitled plus owed); protected, funded and "
    "unfunded runs; waits. Owed: GPU-h from the past. Got: part of the GPU time used since the log began. A parent's line "
    "includes those below it."
)


def add_to(app: typer.Typer) -> None:
    """Register the verb."""
    app.command("share", rich_help_panel=PANEL)(read_verb(share))


async def share(
    place: ReadPlace,
    budget: Annotated[str, typer.Argument(metavar="BUDGET", help="This budget and those below it")] = "",
    pool: Pool = "",
    all_: Annotated[bool, typer.Option("--all", help="The arithmetic of idle budgets too")] = False,
) -> Answer:
    """Show each budget's guarantee, entitlement, debt and allowance, with the arithmetic."""
    async with opened(place) as source:
        if budget:
            await budget_of(source, budget)
        reply = await source.ask("share", **given(pool=pool))
    used = [row for row in reply.rows if not budget or _within(str(row["budget"]), budget)]
    core = await core_if_readable(place, reply.as_of.seq, _WITHOUT) if used else None
    pools, rows = merged(used, core)
    shown = [
        {**row, "budget": indented(row), "bar": bar(row["got_of_used_ppm"], row["share_of_pool_ppm"])} for row in rows
    ]
    columns = without_constant([name for name in COLUMNS if core or name not in CORES], rows, "pool")
    section = Section(rows, columns, shown=shown, headings=HEADINGS,
                      empty="no budget yet; an operator makes one: apportion budget set lab --share 100%",
                      drop=("bar", "got_of_used_ppm", "guaranteed_milli"), flexible="bar")  # fmt: skip
    after = [LEGEND, "", *_told(pools, rows, all_=all_)] if core else []
    return Answer([section], after=after, more={"pools": pools}, as_of=reply.as_of)


def merged(used: list[dict[str, Any]], core: Core | None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pools, and the budgets by the projection (over time) and by the core (now)."""
    from apportion.adapters.seen import standing

    if core is None:
        return [], [{**row, "share_of_pool_ppm": row["entitled_ppm"]} for row in used]
    named = {row["pool"] for row in used}
    pools = [found for found in standing.pools(core) if found["pool"] in named]
    lines = {(row["pool"], row["budget"]): row for row in standing.budgets(core)}
    rows = [_joined(row, lines[row["pool"], row["budget"]], pools) for row in used]
    for row in rows:
        row["arithmetic"] = _arithmetic(row, rows)
    return pools, rows


def _within(path: str, budget: str) -> bool:
    return path == budget or path.startswith(budget + "/")


def _joined(used: dict[str, Any], line: dict[str, Any], pools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one budget; whether it is a leaf is the core's word, for which a closed child is still a child."""
    capacity = next(found["capacity_milli"] for found in pools if found["pool"] == used["pool"])
    names = (
        "pool", "budget", "parent", "level", "closed", "share_ppm", "got_ppm", "got_of_used_ppm", "funded_gpu_us",
        "unfunded_gpu_us", "pending_count",
    )  # fmt: skip
    return {
        **{name: used[name] for name in names},
        "share_of_pool_ppm": used["entitled_ppm"],
        "guaranteed_milli": capacity * used["entitled_ppm"] // PPM,
        **{name: value for name, value in line.items() if name not in ("pool", "budget", "closed")},
    }


def _arithmetic(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    if row["is_leaf"]:
        return arithmetic.allowance_line(row)
    below = [child for child in rows if child["pool"] == row["pool"] and child["parent"] == row["budget"]]
    return arithmetic.sum_line(row, below)


def _told(pools: list[dict[str, Any]], rows: list[dict[str, Any]], *, all_: bool) -> list[str]:
    """Return the arithmetic of every budget that has something, pool by pool."""
    lines, left_out = [], 0
    for pool in pools:
        lines += arithmetic.pool_lines(pool)
        for row in (found for found in rows if found["pool"] == pool["pool"]):
            quiet = not (row["demand_milli"] or row["lag_gpu_us"] or row["allowance_milli"])
            if quiet and not all_:
                left_out += 1
                continue
            lines.append(f"  {row['budget']}: {row['arithmetic']}")
            if row["is_leaf"]:
                why = f"entitled {gpu_count(row['entitled_milli'])}: {arithmetic.entitled_line(row)}"
                lines.append(f"    {why}; {arithmetic.runs_line(row)}")
    if left_out:
        lines.append(f"  {left_out:,} more ask for nothing and are owed nothing; --all shows them")
    return lines


def indented(row: dict[str, Any]) -> str:
    """Return the budget's own name, indented by its depth; a closed one says so."""
    path = str(row["budget"])
    depth = path.count("/")
    return "  " * depth + path.rsplit("/", 1)[-1] + (" (closed)" if row.get("closed") else "")


def bar(got_ppm: int | None, entitled_ppm: int | None) -> str:
    """Return a bar of what was got, with a mark where the entitlement ends: ``####|...`` or ``######|##``."""
    if got_ppm is None or entitled_ppm is None:
        return ""
    scale = max(got_ppm, entitled_ppm, 1)
    filled = (got_ppm * BAR + scale // 2) // scale
    mark = min(BAR - 1, (entitled_ppm * BAR + scale // 2) // scale)
    cells = ["#" if position < filled else "." for position in range(BAR)]
    cells.insert(mark if mark < BAR - 1 or entitled_ppm < scale else BAR, "|")
    return "".join(cells)
