"""From what a person names to what the core knows: a job by id or name, a budget, a pool, a node.

Asks the projector; guesses never, suggests always: an unknown name comes back with the nearest known ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from apportion.adapters.cli.asking import Source
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.telling import refusal_words


def nearest(wrong: str, known: Iterable[str], what: str, where: str) -> Failure:
    """Return the usage failure for an unknown ``what``, with the nearest known ones."""
    names = sorted(set(known))
    near = difflib.get_close_matches(wrong, names, n=3, cutoff=0.5)
    if not near:
        near = [name for name in names if wrong.lower() in name.lower()][:3]
    if near:
        do = f"did you mean {' or '.join(near)}? ({where})"
    elif names and len(names) <= 8:
        do = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)} ({where})"
    else:
        do = where
    return usage(f"there is no {what} {wrong!r}", do)


async def workload_of(source: Source, job: str) -> dict[str, Any]:
    """Return the workload with this id, else the newest one of this name.

    Raises ``Failure``: 1 for a submission that was refused, with the reason; 2 for an unknown job, with the nearest names.
    """
    found = await source.ask("workload", workload=job)
    if found.first is not None:
        return found.first
    decided = await source.ask("decisions", workload=job, type="workload.rejected")
    if decided.rows:
        sentence, action = refusal_words(decided.rows[-1]["body"])
        raise Failure(FAILED, f"{job} was refused: {sentence}", action, decision=decided.rows[-1]["body"])
    recent = await source.ask("queue", state="all", row_limit=500)
    known = [str(row[name]) for row in recent.rows for name in ("workload", "name") if row.get(name)]
    raise nearest(job, known, "job", "`apportion queue` lists the jobs")


async def pools_of(source: Source, budget: str) -> list[str]:
    """Return the pools in which this budget exists; raises ``Failure`` (2) with the nearest budgets when in none."""
    rows = (await source.ask("budgets")).rows
    pools = [str(row["pool"]) for row in rows if row["budget"] == budget]
    if not pools:
        raise nearest(budget, (str(row["budget"]) for row in rows), "budget", "`apportion budget list` shows them")
    return sorted(pools)


async def one_pool(source: Source, given: str) -> str:
    """Return the pool named, else the only one there is. Raises ``Failure`` (2)."""
    pools = sorted({str(row["pool"]) for row in (await source.ask("pools")).rows})
    if given:
        if given not in pools:
            raise nearest(given, pools, "pool", "`apportion status` lists the pools")
        return given
    if len(pools) == 1:
        return pools[0]
    if not pools:
        raise usage(
            "there is no pool yet", "start an agent (`apportion up`, `apportion agent`), or publish pool.defined"
        )
    raise usage(f"there are {len(pools)} pools and none is named", f"--pool POOL, one of {', '.join(pools)}")


async def node_of(source: Source, node: str) -> dict[str, Any]:
    """Return the node. Raises ``Failure`` (2) with the nearest names."""
    rows = (await source.ask("nodes")).rows
    for row in rows:
        if row["node"] == node:
            return row
    raise nearest(node, (str(row["node"]) for row in rows), "node", "`apportion node list` shows them")


async def budget_of(source: Source, budget: str) -> list[dict[str, Any]]:
    """Return the budget's rows, one per pool. Raises ``Failure`` (2) with the nearest names."""
    rows = (await source.ask("budgets")).rows
    found = [row for row in rows if row["budget"] == budget]
    if not found:
        raise nearest(budget, (str(row["budget"]) for row in rows), "budget", "`apportion budget list` shows them")
    return found
