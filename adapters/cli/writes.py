"""Verbs that act on workloads: submit, cancel, reprioritize.

Each makes one event, publishes it as the principal, waits for the core's decision and says it in words. The workload's
id is made here, so a repeated send is the same workload and never a second one.
"""

from __future__ import annotations

import os
from typing import Annotated, cast

import typer

from apportion.adapters.cli import services, wishes
from apportion.adapters.cli.ahead import dry_run
from apportion.adapters.cli.asking import opened
from apportion.adapters.cli.deciding import follow, send, written
from apportion.adapters.cli.failure import usage
from apportion.adapters.cli.finding import pools_of, workload_of
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.publishing import checked, new_id
from apportion.adapters.cli.verbs import WritePlace, lasting, one_of, write_verb

PANEL = "Act"
KINDS = ("training", "batch_inference", "quantization", "realtime", "interactive")
_OPTIONS = {
    "budget": "--budget", "pools": "--pool", "gpus_milli": "--gpus", "nodes": "--nodes", "kind": "--kind",
    "name": "--name", "min_runtime_ms": "--min-runtime", "expected_runtime_ms": "--expected-runtime",
    "checkpoint_interval_ms": "--checkpoint-interval", "grace_ms": "--grace", "priority": "--priority",
    "max_failures": "--max-failures", "command": "the command", "cwd": "--cwd", "workload": "--id", "reason": "--reason",
    **wishes.OPTIONS, **services.OPTIONS,
}  # fmt: skip
_OF_A_JOB = {**_OPTIONS, "workload": "JOB"}

Job = Annotated[str, typer.Argument(metavar="JOB", help="Workload id, or its name (the newest of that name)")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("submit", rich_help_panel=PANEL)(write_verb(submit))
    app.command("cancel", rich_help_panel=PANEL)(write_verb(cancel))
    app.command("reprioritize", rich_help_panel=PANEL)(write_verb(reprioritize))


async def submit(
    place: WritePlace,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="What to run, after --", show_default=False)
    ] = None,
    budget: Annotated[str, typer.Option(metavar="PATH", help="Budget to charge, such as lab/llm/olmo")] = "",
    gpus: wishes.Gpus = 1000,
    nodes: wishes.Nodes = 0,
    loose: wishes.Loose = False,
    within: wishes.Within = None,
    near: wishes.Near = None,
    label: wishes.Label = None,
    gpu_memory: wishes.GpuMemory = 0,
    cpu: wishes.Cpu = 0,
    memory: wishes.Memory = 0,
    exclusive: wishes.Exclusive = False,
    block: wishes.Block = False,
    apart: wishes.Apart = None,
    name: Annotated[str, typer.Option(metavar="TEXT", help="A name for people; need not be unique")] = "",
    min_runtime: Annotated[
        int | None,
        lasting(
            "Not interrupted for this long: start-up plus one checkpoint; 0 = idle GPUs only "
            "[default: the pool's quantum]"
        ),
    ] = None,
    expected_runtime: Annotated[
        int | None,
        lasting("At most this long; short jobs fit into gaps"),
    ] = None,
    checkpoint_interval: Annotated[
        int | None,
        lasting("How often it checkpoints"),
    ] = None,
    grace: Annotated[
        int | None,
        lasting("From SIGTERM to SIGKILL [default: 30s]"),
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Order inside its budget; higher first")] = 0,
    pool: Annotated[
        list[str] | None, typer.Option(metavar="POOL", help="Acceptable pools in order of wish: A,B or --pool A --pool B")
    ] = None,
    kind: Annotated[
        str, typer.Option(parser=one_of(*KINDS), metavar="KIND", help=f"One of {', '.join(KINDS)}")
    ] = "training",
    max_failures: Annotated[int, typer.Option(metavar="N", help="Run again after this many failures")] = 0,
    auto_resume: wishes.AutoResume = True,
    movable: wishes.Movable = False,
    replicas: services.Replicas = None,
    gpus_per_traffic: services.PerTraffic = None,
    swap: services.Swap = None,
    startup: services.Startup = None,
    hold: services.Hold = None,
    penalty: services.Penalty = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]", help="Environment variable to pass; repeat for more")
    ] = None,
    cwd: Annotated[str | None, typer.Option(metavar="DIR", help="Where to run [default: here]")] = None,
    id_: Annotated[str | None, typer.Option("--id", metavar="ID", help="Workload id [default: a new one]")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end and exit with its exit code")] = False,
) -> Answer:
    """Ask for GPUs to run a command; print what the core decided."""
    command = _complete(place, command, budget, wait=wait)
    service = services.service_of(
        kind, replicas, gpus_per_traffic, swap_replicas=swap, startup_ms=startup, hold_ms=hold, penalty=penalty
    )
    from apportion.core.events import WorkloadSubmitted

    async with opened(place) as source:
        pools = [name for given in pool for name in given.split(",")] if pool else await pools_of(source, budget)
        workload = id_ or new_id(name or os.path.basename(command[0]))
        event = checked(
            WorkloadSubmitted,
            _OPTIONS,
            workload=workload,
            budget=budget,
            pools=pools,
            gpus_milli=gpus,
            nodes=nodes,
            loose=loose,
            within=within,
            near=near,
            labels=wishes.labels_of(label),
            gpu_memory_mib=gpu_memory,
            cpu_milli=cpu,
            memory_mib=memory,
            exclusive=exclusive,
            block=block,
            **wishes.apart_of(apart),
            kind=kind,
            service=service,
            name=name,
            min_runtime_ms=min_runtime,
            expected_runtime_ms=expected_runtime,
            checkpoint_interval_ms=checkpoint_interval,
            grace_ms=grace,
            auto_resume=auto_resume,
            movable=movable,
            priority=priority,
            max_failures=max_failures,
            command=command,
            env=_environment(env or []),
            cwd=os.path.abspath(cwd) if cwd else os.getcwd(),
        )
        if place.dry_run:
            return await dry_run(source, place, cast(WorkloadSubmitted, event), _OPTIONS)
        outcome = await send(source, place, event, _OPTIONS, workload=workload)
        answer = outcome.answer(subject=workload, job=workload)  # raises when it was refused
        return await follow(source, place, workload) if wait and outcome.decided else answer


def _complete(place: WritePlace, command: list[str] | None, budget: str, *, wait: bool) -> list[str]:
    """Return the command; raises when it, or the budget, is missing, or when it can be neither waited for nor left."""
    if not budget:
        raise usage(
            "no budget is given", "--budget PATH, such as --budget lab/llm/olmo; `apportion budget list` shows them"
        )
    if not command:
        raise usage(
            "there is nothing to run", "put the command last, after --: apportion submit ... -- python train.py"
        )
    if wait and place.detach:
        raise usage("--wait and --detach cannot both be given", "choose one of them")
    return list(command)


def _environment(texts: list[str]) -> dict[str, str]:
    """Return the variables; ``KEY`` alone takes the value it has here."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key:
            raise usage(f"--env {text!r} has no name", "write --env KEY=VALUE, or --env KEY to pass your own value")
        if not equals and key not in os.environ:
            raise usage(f"--env {key}: this variable is not set here", f"write --env {key}=VALUE")
        found[key] = value if equals else os.environ[key]
    return found


async def cancel(place: WritePlace, job: Job) -> Answer:
    """Withdraw a job; a running one gets SIGTERM, its grace, then SIGKILL."""
    from apportion.core.events import WorkloadCancelled

    async with opened(place) as source:
        workload = (await workload_of(source, job))["workload"]
        event = checked(WorkloadCancelled, _OF_A_JOB, workload=workload, reason=place.reason)
        return await written(source, place, event, _OF_A_JOB, workload, {"workload": workload}, job=workload)


async def reprioritize(
    place: WritePlace,
    job: Job,
    priority: Annotated[int, typer.Argument(metavar="PRIORITY", help="Higher goes first inside its budget")],
) -> Answer:
    """Change a job's order inside its budget."""
    from apportion.core.events import WorkloadReprioritized

    async with opened(place) as source:
        workload = (await workload_of(source, job))["workload"]
        event = checked(WorkloadReprioritized, _OF_A_JOB, workload=workload, priority=priority, reason=place.reason)
        return await written(source, place, event, _OF_A_JOB, workload, {"workload": workload}, job=workload)
