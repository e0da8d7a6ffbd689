"""The one question about space: which GPUs would this workload get? A thin call of ``kernels.pack.find_gpus``.

Placing, preempting, reserving and explaining all ask here, on the real GPU column or on a copy in which runs are imagined gone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.core.kernels import pack
from apportion.core.state.state import State
from apportion.core.units import MAX_NODE_GPUS, MILLI

I64 = NDArray[np.int64]


def find_gpus(state: State, workload: int, used: I64, masked: I64) -> list[int]:
    """Return the GPU rows the workload would get, in piece order; [] when it does not fit.

    ``used`` (milli per GPU row) stands for the GPU column, ``masked`` (per node row) > 0 leaves a node out.
    """
    table, node, gpu = state.workload, state.node, state.gpu
    nodes = int(table.nodes[workload])
    chosen = np.zeros(min(nodes, node.used + 1) * MAX_NODE_GPUS, dtype=np.int64)
    count = pack.find_gpus(
        int(table.pool[workload]), nodes, int(table.milli_per_node[workload]), workload + 1, node.used, node.pool,
        node.first_gpu, node.gpus, masked, used, gpu.out, gpu.held_by, chosen,
    )  # fmt: skip
    return [int(row) for row in chosen[:count]]


def healthy_nodes_for(state: State, workload: int) -> int:
    """Return how many nodes in service could hold the workload's part when empty."""
    need = max(1, int(state.workload.milli_per_node[workload]) // MILLI)
    node = state.node
    return int(
        pack.largest_shape(
            int(state.workload.pool[workload]), need, node.used, node.pool, node.first_gpu, node.gpus, state.gpu.out, 1
        )
    )
