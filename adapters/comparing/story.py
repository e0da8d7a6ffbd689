"""What all policies get alike: the jobs, and the world they are played in.

Decides the size of the cluster from the demand asked for, and the entitlements; a pure function of the options and the files
they name. Without a trace the demo's generator makes jobs of the ITP trace's shape; a trace is the ITP or the Philly one, or the
jobs that ``apportion import --jobs`` wrote. Nobody lives on grants and nobody asks for idle cycles here: all want their share in
earnest, so what is due is water-filling alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from apportion.adapters.comparing import traces
from apportion.adapters.comparing.setting import Tree
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.demo.trace import TRACE_EPOCH_MS, TraceError, read_trace
from apportion.adapters.imports import jobs as imported
from apportion.adapters.simulation.cluster import ROOT, Layout, default_shares, shares_for
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.people import Habits
from apportion.adapters.simulation.world import WorldOptions
from apportion.core.units import MS_PER_DAY, PPM, gpu_us

FIRST_DAY = traces.ITP_FIRST_DAY
DEMAND_MILLI = 2_500


class StoryRefused(Exception):
    """What is asked for cannot be played; the message says what can."""


class Story(NamedTuple):
    """One input. ``tree`` is (path, ppm of its parent), parents first."""

    source: str
    jobs: list[Job]
    world: WorldOptions
    tree: Tree

    @property
    def asked_us(self) -> int:
        """GPU time that all jobs need."""
        return sum(gpu_us(job.gpus * 1_000, job.duration_ms) for job in self.jobs)

    @property
    def demand_milli(self) -> int:
        """GPU time asked over GPU time there is, in thousandths."""
        return self.asked_us * 1_000 // gpu_us(self.world.layout.gpus * 1_000, self.world.length_ms)


def story(trace: Path | None, days: int, demand_milli: int | None, seed: int) -> Story:
    """Return the input. Raises ``StoryRefused``."""
    layout = Layout(grants=())
    length_ms = days * MS_PER_DAY
    start_ms = WorldOptions().start_ms
    if trace is None:
        largest = min(64, layout.gpus // 4)
        jobs = generate(seed, Shape(days, layout.gpus, demand_milli or DEMAND_MILLI, largest))
        source = f"generator, seed {seed}"
    else:
        source = f"trace {trace.name}"
        try:
            layout, jobs, start_ms = _traced(trace, layout, days)
        except (TraceError, OSError) as error:
            raise StoryRefused(f"--trace: {error}") from error
        if demand_milli is not None:
            layout = layout._replace(nodes=_nodes(jobs, length_ms, demand_milli, layout.gpus_per_node))
    world = WorldOptions(seed, start_ms, length_ms, layout, Habits(idle_cycles=0))
    shares = layout.shares or default_shares()
    tree = ((ROOT, PPM), *((f"{ROOT}/{program}", ppm) for program, ppm in shares))
    return Story(source, jobs, world, tree)


def _traced(path: Path, layout: Layout, days: int) -> tuple[Layout, list[Job], int]:
    if imported.is_jobs(path):
        return _imported(path, layout, days)
    if path.name.startswith("philly") or (path.is_dir() and any(path.glob("philly*.csv"))):
        if days > traces.DAYS:
            raise TraceError(f"{path}: {traces.DAYS} days of it are played at most, --days {days} asks for more")
        found = traces.load(str(path), "fair")
        jobs = [job for job in found.jobs if job.submit_ms < days * MS_PER_DAY]
        start_ms = int(traces.PHILLY_FROM.timestamp()) * 1_000
        return layout._replace(nodes=found.setting.nodes, shares=found.setting.tree), jobs, start_ms
    jobs = read_trace(path, FIRST_DAY, days)
    numbered = [job._replace(job_id=f"{job.program}-{number:05d}") for number, job in enumerate(jobs, 1)]
    shares = shares_for([job.program for job in jobs])
    return layout._replace(shares=shares), numbered, TRACE_EPOCH_MS + FIRST_DAY * MS_PER_DAY


def _imported(path: Path, layout: Layout, days: int) -> tuple[Layout, list[Job], int]:
    """Return jobs of another scheduler's history: the first days of it, on a cluster for which they are as much as made-up jobs.

    Sizes above a node become whole nodes, as a gang must.
    """
    found = imported.read(path, days)
    per_node = layout.gpus_per_node
    jobs = [
        job._replace(
            job_id=f"{job.program}-{number:05d}",
            gpus=job.gpus if job.gpus <= per_node else -(-job.gpus // per_node) * per_node,
        )
        for number, job in enumerate(found.jobs, 1)
    ]
    nodes = _nodes(jobs, days * MS_PER_DAY, DEMAND_MILLI, per_node)
    return layout._replace(nodes=nodes, shares=shares_for([job.program for job in jobs])), jobs, found.start_ms


def _nodes(jobs: list[Job], length_ms: int, demand_milli: int, per_node: int) -> int:
    """Return how many nodes make the jobs so many thousandths of what there is; at least as many as the largest job needs."""
    asked_us = sum(gpu_us(job.gpus * 1_000, job.duration_ms) for job in jobs)
    wanted = asked_us * 1_000 // demand_milli // (length_ms * 1_000) // per_node
    return max(1, wanted, -(-max(job.gpus for job in jobs) // per_node))
