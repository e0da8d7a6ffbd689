"""What ``submit`` may ask of nodes beside a number of GPUs: the options, one type each.

Types alone: what they mean is ``WorkloadSubmitted``; whether it can be had is the core's answer.
"""

from __future__ import annotations

from typing import Annotated

import typer

Loose = Annotated[bool, typer.Option("--loose", help="GPUs wherever they are, however many on a node")]
Within = Annotated[
    str | None, typer.Option("--within", metavar="LEVEL", help="All of it in one domain of this level: node, rack, ...")
]
Near = Annotated[
    str | None, typer.Option("--near", metavar="LEVEL", help="In as few domains of this level as can be, if it may be")
]

OPTIONS = {"loose": "--loose", "within": "--within", "near": "--near"}
