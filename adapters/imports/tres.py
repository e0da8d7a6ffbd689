"""Slurm's trackable resources: ``billing=8,cpu=64,gres/gpu=8,gres/gpu:a100=8,mem=62.50G,node=8``.

Decides what of such a text is GPUs. A pure function of it. ``gres/gpu`` is the sum, ``gres/gpu:TYPE`` its parts: the sum counts
where it is stated, else the parts are added up, never both. ``gres/gpumem``, ``gres/shard`` and their like are no GPUs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from apportion.adapters.imports.attempt import Unread, count

GPU, GPU_TYPE = "gres/gpu", "gres/gpu:"


class Tres(NamedTuple):
    """What was allocated; None where the text does not say."""

    gpus: int = 0
    gpu_type: str = ""
    cpus: int | None = None
    nodes: int | None = None


@functools.lru_cache(maxsize=4_096)
def parse(text: str, what: str = "AllocTRES") -> Tres:
    """Return what the text allocates; raises ``Unread`` when a part of it is no ``name=amount``."""
    total: int | None = None
    typed: dict[str, int] = {}
    cpus = nodes = None
    for part in text.split(",") if text.strip() else ():
        name, equals, amount = part.strip().partition("=")
        if not equals or not name:
            raise Unread(f"{what} has {part[:40]!r}, not name=amount")
        if name == GPU:
            total = count(amount, f"{GPU} in {what}")
        elif name.startswith(GPU_TYPE):
            typed[name[len(GPU_TYPE) :]] = count(amount, f"{name} in {what}")
        elif name == "cpu":
            cpus = count(amount, f"cpu in {what}")
        elif name == "node":
            nodes = count(amount, f"node in {what}")
    gpus = sum(typed.values()) if total is None else total
    return Tres(gpus, "+".join(sorted(typed)), cpus, nodes)
