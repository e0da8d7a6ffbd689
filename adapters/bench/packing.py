"""The published placement experiment on the openb traces: best fit and FGD against what was published, and our packing.

``data`` is a folder laid out like ``fgd-openb`` (``csv/`` and ``expected_results/``); only the traces in it are played, 10
``seeds`` from 42 on as published (the streams are drawn by our own generator). ``best_fit`` and ``fgd`` are the published
baselines. A run takes about half a second of a core, the nine traces there with three packings some three minutes; ``workers``
shares them. Our packing, ``balanced``, knows what the published FGD knows: the mix of the whole trace, not the order of what comes.
Its rule has no number that was fitted to a trace; the choice among the rules tried was made on seeds 1 and 2.

Numbers are per cent of all GPUs that are allocated when 130 % were asked for, their differences points. Progress goes to stderr.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from apportion.adapters.bench.worlds.packing import arrivals, openb
from apportion.adapters.bench.worlds.packing.play import play

OURS = "balanced"
PUBLISHED = {"best_fit": "BestFit", "fgd": "FGD"}  # what the rows call it -> what the results call it
PACKINGS = (*PUBLISHED, OURS)
FIRST_SEED = 42
BESIDE = Path("../shared/data/fgd-openb")  # of the working copy


class Task(NamedTuple):
    """All seeds of one packing on one trace."""

    folder: Path
    trace: str
    packing: str
    seeds: tuple[int, ...]


def run(data: str = "", seeds: int = 10, first_seed: int = FIRST_SEED, traces: str = "", workers: int = 1) -> dict[str, Any]:
    """Return the worst gaps to what was published, ours against the published FGD, and a row per trace."""
    folder = Path(data) if data else BESIDE
    if not folder.is_dir():
        what = f"{data}: no such folder" if data else f"no folder is given and there is none at {BESIDE}"
        raise openb.OpenbError(f"{what}; give one laid out like fgd-openb: --data DIR")
    found = openb.names_of(folder)
    wanted = [name.strip() for name in traces.split(",")] if traces else found
    for name in wanted:
        if name not in found:
            raise openb.OpenbError(f"{folder}: there is no trace {name!r}; there are {', '.join(found)}")
    numbers = tuple(range(first_seed, first_seed + seeds))
    tasks = [Task(folder, name, packing, numbers) for name in wanted for packing in PACKINGS]
    values = dict(zip([(task.trace, task.packing) for task in tasks], _played(tasks, workers), strict=True))
    rows = [_row(name, values, openb.read_published(folder)) for name in wanted]
    ours = [row["ours_minus_published_fgd"] for row in rows if row["ours_minus_published_fgd"] is not None]
    return {
        "fgd_worst_abs_gap_points": _worst(rows, "fgd"),
        "best_fit_worst_abs_gap_points": _worst(rows, "best_fit"),
        "ours": OURS,
        "ours_minus_published_fgd_mean_points": round(sum(ours) / len(ours), 3) if ours else None,
        "ours_minus_published_fgd_worst_points": round(min(ours), 3) if ours else None,
        "seeds": list(numbers),
        "traces": rows,
    }


def allocated(task: Task) -> list[float]:
    """Return what is allocated in the end, per seed; runs in a worker process."""
    nodes = openb.read_nodes(task.folder)
    trace = openb.read_trace(task.folder, task.trace, nodes)
    return [play(task.packing, trace, nodes, arrivals.draw(trace, nodes, seed)).allocated_percent for seed in task.seeds]


def _played(tasks: list[Task], workers: int) -> list[list[float]]:
    """Return the values in the order of ``tasks``; progress to stderr."""
    if workers <= 1:
        return [_told(task, allocated(task)) for task in tasks]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool:
        return [_told(task, values) for task, values in zip(tasks, pool.map(allocated, tasks), strict=True)]


def _told(task: Task, values: list[float]) -> list[float]:
    said = f"{time.strftime('%H:%M:%S')} {task.trace} {task.packing} {sum(values) / len(values):.2f} %"
    print(said, file=sys.stderr, flush=True)
    return values


def _row(name: str, values: dict[tuple[str, str], list[float]], published: dict[tuple[str, str], float]) -> dict[str, Any]:
    row: dict[str, Any] = {"trace": name}
    for packing in PACKINGS:
        mine = values[name, packing]
        row[packing] = {"mean": round(sum(mine) / len(mine), 3), "per_seed": [round(value, 3) for value in mine]}
    for packing, word in PUBLISHED.items():
        known = published.get((name, word))
        row[packing] |= {
            "published": None if known is None else round(known, 3),
            "gap": None if known is None else round(row[packing]["mean"] - known, 3),
        }
    known = published.get((name, PUBLISHED["fgd"]))
    row["ours_minus_published_fgd"] = None if known is None else round(row[OURS]["mean"] - known, 3)
    return row


def _worst(rows: list[dict[str, Any]], packing: str) -> float | None:
    gaps = [abs(row[packing]["gap"]) for row in rows if row[packing]["gap"] is not None]
    return max(gaps) if gaps else None
