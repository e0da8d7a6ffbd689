"""What ``submit`` asks for: the shape, what nodes must have beside GPUs, whether it stays; the options, one type each, and back.

What they mean is ``WorkloadSubmitted``; whether it can be had is the core's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from apportion.adapters.cli import arguments
from apportion.adapters.cli.verbs import typed
from apportion.adapters.text import render

Gpus = Annotated[
    int,
    typer.Option(
        "--gpus", parser=typed(arguments.gpus_milli), metavar="N", show_default=False,
        help="GPUs in all; 0.5 is half a GPU [default: 1]",
    ),
]  # fmt: skip
Nodes = Annotated[
    int, typer.Option("--nodes", metavar="N", show_default=False, help="Spread over N nodes [default: as few as possible]")
]
Loose = Annotated[bool, typer.Option("--loose", help="GPUs wherever they are, however many on a node")]
Within = Annotated[
    str | None, typer.Option("--within", metavar="LEVEL", help="All of it in one domain of this level: node, rack, ...")
]
Near = Annotated[
    str | None, typer.Option("--near", metavar="LEVEL", help="In as few domains of this level as can be, if it may be")
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=VALUE", help="On nodes that bear this label; repeat for more"),
]
GpuMemory = Annotated[
    int,
    typer.Option(
        "--gpu-memory", parser=typed(arguments.memory_mib), metavar="SIZE", show_default=False,
        help="GPUs with at least so much memory; of a part of a GPU so much of it [default: its part]",
    ),
]  # fmt: skip
Cpu = Annotated[
    int,
    typer.Option(
        "--cpu", parser=typed(arguments.cpu_milli), metavar="N", show_default=False,
        help="Processors on each node; with --loose for each GPU",
    ),
]  # fmt: skip
Memory = Annotated[
    int,
    typer.Option(
        "--memory", parser=typed(arguments.memory_mib), metavar="SIZE", show_default=False,
        help="Memory on each node; with --loose for each GPU, such as 64GiB",
    ),
]  # fmt: skip
Exclusive = Annotated[bool, typer.Option("--exclusive", help="Whole nodes, and paid as such: nobody else on them")]
AutoResume = Annotated[
    bool, typer.Option("--auto-resume/--no-auto-resume", help="Queue it again after a preemption or lost node")
]
Movable = Annotated[
    bool, typer.Option("--movable", help="Past its protected time it may be stopped and go on elsewhere, so that others fit")
]
Block = Annotated[
    bool, typer.Option("--block", help="Contiguous and aligned: a power of two of GPUs on one node, or of whole nodes")
]
Apart = Annotated[
    str | None,
    typer.Option(
        "--apart", metavar="GROUP[/LEVEL]", show_default=False,
        help="In no domain of LEVEL [default: node] in which another of this group of its budget is",
    ),
]  # fmt: skip

OPTIONS = {
    "loose": "--loose", "within": "--within", "near": "--near", "labels": "--label", "gpu_memory_mib": "--gpu-memory",
    "cpu_milli": "--cpu", "memory_mib": "--memory", "exclusive": "--exclusive", "block": "--block", "apart": "--apart",
    "apart_level": "--apart", "movable": "--movable",
}  # fmt: skip


def labels_of(texts: list[str] | None) -> dict[str, str]:
    """Return the labels that were typed."""
    return dict(map(typed(arguments.label), texts or []))


def apart_of(text: str | None) -> dict[str, str | None]:
    """Return group and level that were typed."""
    group, _, level = (text or "").partition("/")
    return {"apart": group or None, "apart_level": level or None}


def options_of(row: Mapping[str, Any]) -> str:
    """Return the wish of a stored workload as one would type it: ``--within rack --cpu 64``; "" for one without."""
    words = [OPTIONS[name] for name in ("loose", "exclusive", "block") if row[name]]
    words += [f"{OPTIONS[name]} {row[name]}" for name in ("within", "near") if row[name]]
    words += [f"--label {name}={value}" for name, value in row["labels"].items()]
    words += [f"{OPTIONS[name]} {row[name]}MiB" for name in ("gpu_memory_mib", "memory_mib") if row[name]]
    if row["cpu_milli"]:
        words.append(f"--cpu {render.gpu_count(row['cpu_milli'])}")
    if row["apart"]:
        words.append(f"--apart {row['apart']}" + (f"/{row['apart_level']}" if row["apart_level"] else ""))
    if len(row["pools"]) > 1:
        words += [f"--pool {name}" for name in row["pools"]]
    return render.clean(" ".join(words))
