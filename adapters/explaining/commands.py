"""Changes and tests in words: what to do, the command that does it, and what stands between a node and a job.

Pure functions of a ``Change`` or a ``Test``; the templates are filled by ``adapters.text.template``. A command is
one that a person can paste; only what is run stands there as COMMAND, because the core does not know it.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from apportion.adapters.explaining.changes import Change
from apportion.adapters.explaining.nodes import Test
from apportion.adapters.explaining.trying import AFTER_STOPS
from apportion.adapters.text import render
from apportion.adapters.text.template import fill
from apportion.core.events import BudgetSet, NodeUncordoned, RunFinished, WorkloadSubmitted

CHANGES = {
    "again": "submit the same anew: the wait after failures is over then",
    "gpus": "ask for {gpus_milli} in place of {asked_milli}",
    "shape": "ask {what}",
    "pool": "accept pool {pool} too",
    "priority": "priority {priority} in place of {before}",
    "share": "{budget}: {share_ppm} of the budget above it in place of {before_ppm}"
             "[; {taken_ppm} of it are taken from its {siblings} siblings, in proportion]",
    "grant": "put {grant_gpu_us} into {budget}",
    "min_runtime": "be protected for {min_runtime_words}",
    "expected_runtime": "state that it runs at most {expected_runtime_words}",
    "node": "take node {node} back into service",
    "holds": "these {count} runs end: {holders} ({gpus_milli} together)",
    "hold": "run {run} of {holder} ends ({gpus_milli} of {budget}[, no work since {idle_since_ms}])",
}
TESTS = {
    "pool": ("it is in pool {pool}", "it is in pool {pool}, which the job does not accept"),
    "in_service": ("it is in service[, {broken} of its GPUs are broken]",
                   "it is out of service: {state}[, last heard {last_seen_ms}]"),
    "drain": ("[it is drained by {until_ms}, and the job says it is over by {over_ms}]",
              "it is drained by {until_ms}, and the job does not state to be over by then"),
    "label": ("it bears {label}", "it does not bear label {label}"),
    "gpu_memory": ("its GPUs have {offers} MiB of memory", "its GPUs have {offers} MiB of memory, asked for are {need}"),
    "cpu": ("{offers} processors are left", "{offers} processors are left, asked for are {need}"),
    "memory": ("{offers} MiB of memory are left", "{offers} MiB of memory are left, asked for are {need}"),
    "exclusive": ("it is a whole node of {offers} GPUs", "it is asked for whole nodes of {need} GPUs, and this one has {offers}"),
    "size": ("{node_milli} in service, {need_milli} asked of a node",
             "it has {node_milli} in service, and {need_milli:is|are} asked of a node"),
    "free_gpus": ("{free_milli} free for it, {need_milli} needed",
                  "{free_milli} free for it, {need_milli} needed[; held for {held_for}]"),
    "block": ("an aligned block of {need_milli} is free", "{free_milli} free, but no aligned block of {need_milli}"),
    "apart": ("nobody of its group {group} is near", "another of its group {group} is in the same domain"),
    "kept": ("[kept for {holder} from {until_ms}, and the job says it is over by then]",
             "it is kept for {holder}, which starts by {until_ms}, and the job does not state to be over by then"),
    "domain": ("{nodes_able:node|nodes} of its domain would do, {nodes_needed} needed",
               "only {nodes_able:node|nodes} of its domain would do, {nodes_needed} needed in one"),
    "others": ("{nodes_able:node|nodes} would do, {nodes_needed} needed",
               "only {nodes_able:node|nodes} would do now, {nodes_needed} needed"),
}  # fmt: skip
GRACE_MS = next(field.default for field in msgspec.structs.fields(WorkloadSubmitted) if field.name == "grace_ms")
LABELS = {
    "in_service": "in service", "gpu_memory": "GPU memory", "cpu": "CPU", "free_gpus": "free GPUs", "kept": "kept for others",
    "others": "enough nodes",
}  # fmt: skip
RULES = {
    "may_go": "could go", "stopping": "were stopping already", "funded": "were funded", "protected": "were protected",
    "own_budget": "were of the same budget", "just_took": "were of a budget that had just taken GPUs so",
    "within_share": "were of budgets that would then have been below their share",
}  # fmt: skip


def change_words(change: Change, asked_milli: int) -> str:
    """Return what to change, in a sentence."""
    numbers = {**change.numbers, "asked_milli": asked_milli}
    if "min_runtime_ms" in numbers:
        ms = int(numbers["min_runtime_ms"])
        numbers["min_runtime_words"] = render.duration(ms) if ms else "no time (on idle GPUs only)"
    if "minutes" in numbers:
        numbers["expected_runtime_words"] = render.duration(int(numbers["minutes"]) * 60_000)
    return fill(CHANGES[change.kind], numbers)


def cost_words(change: Change) -> str:
    """Return when it starts by that, and at whose cost."""
    when = "it starts at once"
    if change.outcome.starts == AFTER_STOPS:
        when = "it starts when those have gone that make room"
    costs = []
    for word in ("preempted", "moved"):
        stops = [stop for stop in change.outcome.stops if bool(stop["moved"]) == (word == "moved")]
        if stops:
            lost = render.gpu_time(sum(int(str(stop["lost_gpu_us"])) for stop in stops))
            names = ", ".join(f"{stop['workload']} ({render.gpus(int(str(stop['gpus_milli'])))})" for stop in stops[:3])
            more = f" and {len(stops) - 3} more" if len(stops) > 3 else ""
            costs.append(f"{len(stops)} {word}: {names}{more}; they lose {lost} since they last saved")
    if later := change.outcome.later:
        more = f" and {len(later) - 3} more" if len(later) > 3 else ""
        costs.append(f"{', '.join(later[:3])}{more} would get no GPUs in this cycle")
    return f"{when}; {'; '.join(costs) if costs else 'nobody else is touched'}"


def commands_of(change: Change, job: str, pool: str) -> list[str]:
    """Return the commands that make the change, in order."""
    numbers = change.numbers
    pools = f" --pool {shlex.quote(pool)}"
    match change.kind:
        case "priority":
            return [f"apportion reprioritize {job} {numbers['priority']}"]
        case "share":
            shares = [event for _who, event in change.edits if isinstance(event, BudgetSet)]
            return [f"apportion budget set {event.budget} --share {event.share_ppm}ppm{pools}" for event in shares]
        case "grant":
            return [f"apportion budget grant {numbers['budget']} --gpu-hours {numbers['hours']}{pools}"]
        case "node":
            return [f"apportion node uncordon {event.node}" for _who, event in change.edits if isinstance(event, NodeUncordoned)]
        case "hold" | "holds":
            return [f"apportion cancel {event.workload}" for _who, event in change.edits if isinstance(event, RunFinished)]
        case _:
            assert change.asks is not None
            return [f"apportion cancel {job}", submit_words(change.asks)]


def submit_words(asks: WorkloadSubmitted) -> str:
    """Return the command that submits what is asked."""
    words = ["apportion submit", f"--budget {asks.budget}", f"--gpus {render.gpu_count(asks.gpus_milli).replace(',', '')}"]
    if asks.nodes > 1:
        words.append(f"--nodes {asks.nodes}")
    given: dict[str, Any] = {
        "--loose": asks.loose, "--exclusive": asks.exclusive, "--block": asks.block, "--movable": asks.movable,
        "--within": asks.within, "--near": asks.near, "--priority": asks.priority, "--max-failures": asks.max_failures,
        "--gpu-memory": f"{asks.gpu_memory_mib}MiB" if asks.gpu_memory_mib else "",
        "--cpu": render.gpu_count(asks.cpu_milli) if asks.cpu_milli else "",
        "--memory": f"{asks.memory_mib}MiB" if asks.memory_mib else "",
        "--apart": f"{asks.apart}/{asks.apart_level}" if asks.apart else "",
        "--expected-runtime": exact(asks.expected_runtime_ms) if asks.expected_runtime_ms else "",
        "--grace": exact(asks.grace_ms) if asks.grace_ms != GRACE_MS else "", "--no-auto-resume": not asks.auto_resume,
    }  # fmt: skip
    words += [name if value is True else f"{name} {shlex.quote(str(value))}" for name, value in given.items() if value]
    words += [f"--label {shlex.quote(f'{name}={value}')}" for name, value in asks.labels.items()]
    words.append(f"--min-runtime {exact(asks.min_runtime_ms or 0)}")
    words += [f"--pool {','.join(asks.pools)}", "-- COMMAND"]
    return " ".join(words)


def exact(ms: int) -> str:
    """Return a duration that the command line reads back as exactly this, in the largest unit that leaves it whole."""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def test_words(test: Test) -> str:
    """Return what a test found; "" where there is nothing to say."""
    numbers = {name: value for name, value in test.numbers.items() if isinstance(value, int | str)}
    return fill(TESTS[test.name][0 if test.holds else 1], numbers)


def label_of(name: str) -> str:
    """Return the short name of a test."""
    return LABELS.get(name, name)
