"""GPUs as NVML reports them (package ``nvidia-ml-py``, the extra ``gpu``).

A GPU keeps the index it joined with: after a GPU has fallen off the bus, NVML counts the remaining ones anew, so the
index is looked up by UUID each time. A GPU that is missing, lost, or waits for a row remapping it could not do is
reported as down; the node never shrinks by itself, because runs may hold what is left of it.

It must never keep a node from starting: without the package, the driver or a GPU, ``find`` says so in words.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from apportion.adapters.agent.gpus import Held, Reading
from apportion.core.errors import ApportionError
from apportion.core.units import MAX_NODE_GPUS, MILLI

MIB = 1024 * 1024


class NoGpus(ApportionError):
    """NVML cannot be used here; the text says why and what to do."""


class NvmlGpus:
    """The NVIDIA GPUs of this machine."""

    def __init__(self, library: Any, ids: tuple[str, ...] = ()) -> None:
        """Take the GPUs in NVML's order; after a restart they keep the places of ``ids`` (see ``merge_ids``)."""
        self._nvml = library
        present = self._handles()
        self._ids = merge_ids(ids, tuple(present))
        memory = [self._memory_mib(present[uuid]) for uuid in self._ids if present.get(uuid) is not None]
        self._memory_mib_each = min(memory, default=0)

    @property
    def kind(self) -> str:
        """Return ``nvml``."""
        return "nvml"

    @property
    def count(self) -> int:
        """Return how many GPUs the node joined with, healthy or not."""
        return len(self._ids)

    @property
    def memory_mib_each(self) -> int:
        """Return the smallest memory of its GPUs."""
        return self._memory_mib_each

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the UUIDs by index."""
        return self._ids

    def visible(self, gpus: tuple[int, ...]) -> str:
        """Return NVML's present indexes of these GPUs, to be used with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.

        One that is missing is named by its UUID, so that the workload fails instead of using a neighbour's GPU.
        """
        position = {uuid: str(index) for index, uuid in enumerate(self._handles())}
        return ",".join(position.get(self._ids[gpu], self._ids[gpu]) for gpu in gpus)

    def read(self, sessions: Mapping[int, Held]) -> Reading:
        """Read every GPU; one that does not answer is down.

        A run is idle when all of its GPUs say that they computed nothing in NVML's last sampling period (a sixth of a second to
        a second): one reading proves little, but the next one that sees work takes it back. On a GPU that several runs share,
        one that works hides the others.
        """
        present = self._handles()
        down: list[int] = []
        busy = memory = milliwatts = 0
        resting: list[int] = []
        for index, uuid in enumerate(self._ids):
            handle = present.get(uuid)
            if handle is None or self._broken(handle):
                down.append(index)
                continue
            percent = self._utilization(handle)
            busy += (percent or 0) * MILLI // 100
            if percent == 0:
                resting.append(index)
            memory += self._number(lambda h: self._nvml.nvmlDeviceGetMemoryInfo(h).used, handle) // MIB
            milliwatts += self._number(self._nvml.nvmlDeviceGetPowerUsage, handle)
        idle = tuple(session for session, held in sessions.items() if all(gpu in resting for gpu in held.gpus))
        return Reading(gpus_down=tuple(down), busy_milli=busy, memory_mib=memory, watts=milliwatts // 1_000, idle=idle)

    def _utilization(self, handle: Any) -> int | None:
        """Return how busy the GPU is in percent, None when it does not say."""
        try:
            return max(0, int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        except self._nvml.NVMLError:
            return None

    def _handles(self) -> dict[str, Any]:
        """Return the handles of the GPUs that answer, by UUID, in NVML's order."""
        handles: dict[str, Any] = {}
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError:
            return handles
        for index in range(min(count, MAX_NODE_GPUS)):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = self._nvml.nvmlDeviceGetUUID(handle)
            except self._nvml.NVMLError:
                handles[f"not-answering-{index}"] = None  # keeps its place in the order
                continue
            handles[uuid.decode() if isinstance(uuid, bytes) else str(uuid)] = handle
        return handles

    def _broken(self, handle: Any) -> bool:
        """Tell whether the GPU does not answer, or has memory rows it failed to remap."""
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError:
            return True
        try:
            return bool(self._nvml.nvmlDeviceGetRemappedRows(handle)[3])
        except self._nvml.NVMLError:  # not known to this generation
            return False

    def _memory_mib(self, handle: Any) -> int:
        return self._number(lambda h: self._nvml.nvmlDeviceGetMemoryInfo(h).total, handle) // MIB

    def _number(self, ask: Any, handle: Any) -> int:
        try:
            return max(0, int(ask(handle)))
        except self._nvml.NVMLError:
            return 0


def merge_ids(known: tuple[str, ...], present: tuple[str, ...]) -> tuple[str, ...]:
    """Return the UUIDs by index: every known GPU keeps its place, a new one takes a missing one's, more are appended.

    A missing GPU without a replacement keeps its place too, and is down: a node never shrinks by itself.
    """
    new = [uuid for uuid in present if uuid not in known]
    merged = [new.pop(0) if uuid not in present and new else uuid for uuid in known]
    return (*merged, *new)


def find(ids: tuple[str, ...] = ()) -> NvmlGpus:
    """Return this machine's GPUs; ``ids`` are the UUIDs the node joined with before. Raises ``NoGpus``."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise NoGpus(
            "the package nvidia-ml-py is not installed; install apportion[gpu] to use real GPUs, "
            "or start with --gpus N to simulate some"
        ) from None
    try:
        library.nvmlInit()
        found = NvmlGpus(library, ids)
    except library.NVMLError as failure:
        raise NoGpus(
            f"NVML does not start ({failure}); check that nvidia-smi works, or start with --gpus N to simulate some"
        ) from None
    if found.count == 0:
        raise NoGpus("NVML finds no GPU on this machine; start with --gpus N to simulate some")
    return found
