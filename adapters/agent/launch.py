"""From an order and a submission to what a supervisor is told: command, environment, working directory.

A pure function of the order, the stored submission and the node's GPUs. What a command finds in its environment is
listed in ``given_env``; these names cannot be set by a submission.

A workload that is asked to stop (SIGTERM) and ends with exit code 0 has *succeeded*, whoever asked; one that has only
saved its state must end with another code (75 is customary) or by the signal.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from apportion.adapters.agent.gpus import GpuSource
from apportion.adapters.agent.orders import Order
from apportion.adapters.agent.rundir import RunSpec
from apportion.core.envelope import decode_envelope
from apportion.core.events import WorkloadSubmitted, decode_data, replica_of


class Refused(Exception):
    """The node cannot start that run; the text tells why and goes into ``run.finished``."""


def submission_of(order: Order, body: bytes | None) -> WorkloadSubmitted:
    """Decode the record an order goes back to. Raises ``Refused`` when it is not that submission."""
    if body is None:
        raise Refused(f"the submission of {order.workload} is not in the log at seq {order.event_seq}")
    try:
        envelope = decode_envelope(body)
        event = decode_data(envelope.type, envelope.v, envelope.data)
    except msgspec.DecodeError as error:
        raise Refused(f"the record at seq {order.event_seq} cannot be read: {error}") from None
    of_service = isinstance(event, WorkloadSubmitted) and event.service is not None
    asked = replica_of(order.workload)[0] if of_service else order.workload
    if not isinstance(event, WorkloadSubmitted) or event.workload != asked:
        raise Refused(f"the record at seq {order.event_seq} is not the submission of {order.workload}")
    return event


def given_env(order: Order, node: str, gpus: GpuSource, grace_ms: int, run_dir: Path) -> dict[str, str]:
    """Return the variables every command finds."""
    visible = gpus.visible(order.gpus)
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's order; CUDA's own default is "fastest first"
        "CUDA_VISIBLE_DEVICES": visible,
        "APPORTION_WORKLOAD": order.workload,
        "APPORTION_RUN": str(order.run),
        "APPORTION_NODE": node,
        "APPORTION_NODES": str(len(order.nodes)),
        "APPORTION_RANK": str(order.rank),
        "APPORTION_HOSTS": ",".join(order.nodes),
        "APPORTION_GPUS": str(len(order.gpus)),
        "APPORTION_GPU_MILLI": str(order.milli_each),  # of each GPU; below 1000 it is shared
        "APPORTION_RESUME_MS": str(order.resume_from_ms),
        "APPORTION_GRACE_MS": str(grace_ms),  # between SIGTERM and SIGKILL
        "APPORTION_PROGRESS": str(run_dir / "progress"),  # append "<milliseconds>\n" when work so far is safe
    }


def spec_of(order: Order, submitted: WorkloadSubmitted, node: str, gpus: GpuSource, run_dir: Path) -> RunSpec:
    """Return what the supervisor is told. Raises ``Refused`` when this node does not have those GPUs."""
    missing = [gpu for gpu in order.gpus if gpu >= gpus.count]
    if missing:
        raise Refused(f"node {node} has GPUs 0 to {gpus.count - 1}, the run was placed on {missing}")
    given = given_env(order, node, gpus, submitted.grace_ms, run_dir)
    return msgspec.structs.replace(
        bare_spec(order, node),
        grace_ms=submitted.grace_ms,
        command=submitted.command,
        env={**os.environ, **submitted.env, **given},
        cwd=submitted.cwd or str(run_dir),
    )


def bare_spec(order: Order, node: str) -> RunSpec:
    """Return the record of a run that will not be started."""
    return RunSpec(
        workload=order.workload,
        run=order.run,
        node=node,
        gpus=order.gpus,
        milli_each=order.milli_each,
        nodes=order.nodes,
        rank=order.rank,
        resume_from_ms=order.resume_from_ms,
        grace_ms=0,
        event_seq=order.event_seq,
        placed_ms=order.placed_ms,
        command=(),
        env={},
        cwd="",
    )
