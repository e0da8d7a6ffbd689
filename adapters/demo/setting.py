"""What a demo plays, and where: the jobs and the world, and a directory that is ours to fill.

``story`` is a pure function of the options (and of the trace they name). ``claim`` empties the directory of an earlier demo,
which it knows by the file ``demo.json``; a log that no demo made is refused and left as it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.demo.trace import TRACE_EPOCH_MS, TraceError, read_trace
from apportion.adapters.processes.home import Home
from apportion.adapters.simulation.cluster import ROOT, Layout, member_names, shares_for
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.traffic import Curve
from apportion.adapters.simulation.trouble import QUIET
from apportion.adapters.simulation.world import WorldOptions
from apportion.core.errors import ApportionError
from apportion.core.events import Service

MS_PER_DAY = 86_400_000
MARK = "demo.json"
REALTIME_NODES = 8
REALTIME_SHARES = (("serving", 700_000), ("research", 150_000), ("vision", 150_000))
REALTIME_DEMAND_MILLI = 6_000  # before jobs are cut to LONGEST_MS: more than the valleys hold, so that some always waits
REALTIME_LARGEST = 8
LONGEST_MS = 2 * 3_600_000  # the valley before the morning takes longer work badly
HEAD_START_MS = 4 * 3_600_000  # batch work that the day begins with: what was submitted in the evening before


class DemoRefused(ApportionError):
    """The demo cannot be played as asked; the message says what to do."""


@dataclass(frozen=True)
class DemoOptions:
    """What is asked of a demo. Without ``trace`` the jobs are generated from ``seed``."""

    home: Home
    days: int | None = None
    trace: Path | None = None
    seed: int = 1
    first_day: int = 14  # of the trace
    quiet: bool = False
    layout: Layout = field(default_factory=Layout)
    realtime: bool = False  # a day of 64 GPUs, on which a service breathes over batch work
    length_ms: int = 0  # instead of whole days


def story(options: DemoOptions) -> tuple[list[Job], WorldOptions]:
    """Return the jobs and the world they are played in. Raises ``DemoRefused``."""
    if options.realtime:
        return realtime_story(options)
    days = 7 if options.days is None else options.days
    if not 1 <= days <= 365:
        raise DemoRefused(f"--days {days}: play between 1 and 365 days; 7 is the usual week")
    length_ms = options.length_ms or days * MS_PER_DAY
    layout = options.layout
    if options.trace is None:
        shape = Shape(days=days, gpus=layout.gpus, largest=min(64, max(1, layout.gpus // 4)))
        jobs = generate(options.seed, shape)
        return jobs, WorldOptions(seed=options.seed, length_ms=length_ms, layout=layout)
    try:
        jobs = read_trace(options.trace, options.first_day, days)
    except TraceError as error:
        raise DemoRefused(f"--trace: {error}") from error
    layout = layout._replace(shares=shares_for([job.program for job in jobs]))
    start_ms = TRACE_EPOCH_MS + options.first_day * MS_PER_DAY
    numbered = [job._replace(job_id=f"{job.program}-{number:05d}") for number, job in enumerate(jobs, 1)]
    return numbered, WorldOptions(seed=options.seed, start_ms=start_ms, length_ms=length_ms, layout=layout)


def realtime_story(options: DemoOptions) -> tuple[list[Job], WorldOptions]:
    """Return a day on 64 GPUs: a chat service that needs 40 of them at its peak, and batch work of at most 2 hours a job."""
    if options.trace is not None:
        raise DemoRefused("--realtime plays a day of its own; leave out --trace, or --realtime")
    days = 1 if options.days is None else options.days
    if not 1 <= days <= 31:
        raise DemoRefused(f"--days {days}: with --realtime play between 1 and 31 days; 1 is usual")
    layout = Layout(nodes=REALTIME_NODES, shares=REALTIME_SHARES, grants=(), policy="horizon")
    shape = Shape(days=days, gpus=layout.gpus, demand_milli=REALTIME_DEMAND_MILLI, largest=REALTIME_LARGEST)
    programs = [name for name, _share in REALTIME_SHARES[1:]]
    jobs = [
        job._replace(
            job_id=f"{programs[number % len(programs)]}-{number:04d}", program=programs[number % len(programs)],
            duration_ms=min(job.duration_ms, LONGEST_MS), submit_ms=max(0, job.submit_ms - HEAD_START_MS),
        )
        for number, job in enumerate(generate(options.seed, shape), 1)
    ]  # fmt: skip
    program = REALTIME_SHARES[0][0]
    service = Service(min_replicas=2, max_replicas=48, gpus_milli_per_traffic=100, swap_replicas=16, startup_ms=120_000)
    curve = Curve("chat", f"{ROOT}/{program}", member_names(program)[0], layout.pool, 1_000, service, 400_000, options.seed)
    length_ms = options.length_ms or days * MS_PER_DAY
    return jobs, WorldOptions(seed=options.seed, length_ms=length_ms, layout=layout, rates=QUIET, curves=(curve,))


def claim(options: DemoOptions) -> Home:
    """Make the directory ours and empty: an earlier demo is replaced, anything else is left alone."""
    home = options.home
    running = EmbeddedServer.running(home)
    if running is not None:
        raise DemoRefused(
            f"a nats-server (pid {running.pid}) runs for {home.root}; end what uses it (`apportion up`), or choose --dir"
        )
    mark = home.root / MARK
    if home.jetstream.exists() and not mark.exists():
        raise DemoRefused(
            f"{home.root} holds a log that no demo made; the demo begins its own: choose another directory with --dir"
        )
    for folder in (home.jetstream, home.snapshots, home.published):
        shutil.rmtree(folder, ignore_errors=True)
    for file in home.root.glob("projection.duckdb*"):
        file.unlink()
    home.ensure()
    mark.write_text("{}\n", encoding="utf-8")
    return home
