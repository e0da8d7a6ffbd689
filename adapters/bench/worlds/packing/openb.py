"""The openb traces, read as published: nodes, pods by kind, the mix that FGD looks at, and the published results.

Decides what a row means here. A pure function of the files of a folder with ``csv/`` and ``expected_results/``, such as
github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0) has them in ``data`` and ``experiments/analysis``. The nodes are
those with GPUs (``openb_node_list_gpu_node.csv``): only their sums, 6,212 GPUs and 107,018 cores, are those of the published end
state. The mix is, as published, what the whole trace holds: kinds of pods (CPU, GPU milli, GPUs, models; memory aside), the most
frequent first, until they are 95 % of all pods; equals in falling order of these numbers.
It must never repair a row silently: a file that is not as published is refused, with its name and line.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import ApportionError
from apportion.core.kernels import fragments

I64 = NDArray[np.int64]

NODES = "csv/openb_node_list_gpu_node.csv"
PODS = "openb_pod_list_"
RESULTS = "expected_results/analysis_allo_discrete.csv"
ARRIVED_PERCENT = 130
MIX_PERCENT = 95
ANY_MODEL = -1


class OpenbError(ApportionError):
    """The folder given is not laid out as published, or a row is not what it must be."""


class Nodes(NamedTuple):
    """The cluster as columns, by name."""

    first: I64
    gpus: I64
    cpu_milli: I64
    memory_mib: I64
    models: I64  # one bit each
    bits: dict[str, int]

    @property
    def capacity_milli(self) -> int:
        """Return what all GPUs are."""
        return int(self.gpus.sum()) * fragments.WHOLE


class Trace(NamedTuple):
    """One list of pods."""

    name: str
    kinds: I64  # what a pod of the kind asks for: columns of ``fragments``
    pods: list[int]  # kind of each, by name of the pod
    mix: I64

    def gpu_milli(self, kind: int) -> int:
        """Return what all GPUs of one pod are."""
        return int(self.kinds[kind, fragments.GPUS] * self.kinds[kind, fragments.MILLI])


def names_of(folder: Path) -> list[str]:
    """Return the names of the traces in a folder, such as ``default`` and ``cpu250``, sorted."""
    found = sorted(path.stem.removeprefix(PODS) for path in (folder / "csv").glob(f"{PODS}*.csv"))
    if not found:
        raise OpenbError(f"{folder}: no csv/{PODS}*.csv there; give a folder laid out like the published one")
    return found


def read_nodes(folder: Path) -> Nodes:
    """Return the nodes with GPUs, by name, which is the order in which they win ties before it is drawn."""
    rows = sorted(_rows(folder / NODES, ("sn", "cpu_milli", "memory_mib", "gpu"), ("sn", "model")), key=lambda row: row[0]["sn"])
    bits = {model: 1 << bit for bit, model in enumerate(sorted({words["model"] for words, _ in rows}))}
    gpus = _column([numbers["gpu"] for _, numbers in rows])
    return Nodes(
        first=np.cumsum(gpus) - gpus,
        gpus=gpus,
        cpu_milli=_column([numbers["cpu_milli"] for _, numbers in rows]),
        memory_mib=_column([numbers["memory_mib"] for _, numbers in rows]),
        models=_column([bits[words["model"]] for words, _ in rows]),
        bits=bits,
    )


def read_trace(folder: Path, name: str, nodes: Nodes) -> Trace:
    """Return one trace."""
    needed = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    rows = sorted(_rows(folder / "csv" / f"{PODS}{name}.csv", needed, ("name", "gpu_spec")), key=lambda row: row[0]["name"])
    shapes = [
        (numbers["cpu_milli"], numbers["gpu_milli"], numbers["num_gpu"], words["gpu_spec"], numbers["memory_mib"])
        for words, numbers in rows
    ]
    kinds = sorted(set(shapes))
    number = {shape: kind for kind, shape in enumerate(kinds)}
    return Trace(
        name=name,
        kinds=np.array([_asked(*shape, nodes.bits) for shape in kinds], dtype=np.int64),
        pods=[number[shape] for shape in shapes],
        mix=_mix(Counter(shape[:4] for shape in shapes), len(shapes), nodes.bits),
    )


def read_published(folder: Path) -> dict[tuple[str, str], float]:
    """Return the mean over seeds of the allocated part of all GPUs, in per cent, by (trace, policy as published)."""
    path, found = folder / RESULTS, dict[tuple[str, str], list[float]]()
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as text:
        for line, row in enumerate(csv.DictReader(text), start=2):
            try:
                key = row["workload"].removeprefix(PODS), row["sc_policy"].partition("-")[2]
                found.setdefault(key, []).append(float(row[str(ARRIVED_PERCENT)]))
            except (KeyError, TypeError, ValueError) as error:
                raise OpenbError(f"{path} line {line}: not a row of the published results ({error!r})") from error
    return {key: sum(values) / len(values) for key, values in found.items()}


def _mix(counts: Counter[tuple[int, int, int, str]], pods: int, bits: dict[str, int]) -> I64:
    rows, together = [], 0
    for shape, count in sorted(counts.items(), key=lambda entry: (entry[1], entry[0]), reverse=True):
        if together * 100 >= pods * MIX_PERCENT:
            break
        rows.append(_asked(*shape, 0, bits, weight=count))
        together += count
    return np.array(rows, dtype=np.int64)


def _asked(
    cpu_milli: int, gpu_milli: int, gpus: int, spec: str, memory_mib: int, bits: dict[str, int], weight: int = 0
) -> list[int]:
    models = [model for model in spec.split("|") if model]
    asked = [0] * fragments.COLUMNS
    asked[fragments.WEIGHT], asked[fragments.GPUS], asked[fragments.MILLI] = weight, gpus, gpu_milli
    asked[fragments.CPU_MILLI], asked[fragments.MEMORY_MIB] = cpu_milli, memory_mib
    asked[fragments.MODELS] = sum(bits.get(model, 0) for model in dict.fromkeys(models)) if models else ANY_MODEL
    return asked


def _rows(path: Path, needed: tuple[str, ...], words: tuple[str, ...]) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Yield the words and the numbers of each row; a word that no column has is empty."""
    if not path.is_file():
        raise OpenbError(f"{path}: no such file; give a folder laid out like the published one, with csv/ and expected_results/")
    with path.open(encoding="utf-8", newline="") as text:
        for line, row in enumerate(csv.DictReader(text), start=2):
            try:
                numbers = {name: int(row[name]) for name in needed if name not in words}
            except (KeyError, TypeError, ValueError) as error:
                raise OpenbError(f"{path} line {line}: not a row as published ({error!r})") from error
            if min(numbers.values()) < 0:
                raise OpenbError(f"{path} line {line}: a negative number in {row}")
            yield {name: row.get(name) or "" for name in words}, numbers


def _column(values: list[int]) -> I64:
    return np.array(values, dtype=np.int64)
