"""What somebody who waits asks for, in one number: what the largest and smallest requests put in comes out again."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.core.kernels import asked
from apportion.core.units import MAX_NODE_GPUS, MILLI, NEVER_MS


@pytest.mark.parametrize("nodes", [1, 32_767, 32_768, 100_000])  # the most that an event may ask for; loose: as many GPUs
@pytest.mark.parametrize("each", [1, MILLI, MAX_NODE_GPUS * MILLI])
@pytest.mark.parametrize("left_ms", [0, 999, 366 * 86_400_000, NEVER_MS])
@pytest.mark.parametrize("min_runtime_ms", [0, 1])
@pytest.mark.parametrize("wish", [0, 1])
def test_what_was_asked_comes_out_again(nodes: int, each: int, left_ms: int, min_runtime_ms: int, wish: int) -> None:
    waits = np.array([[0, nodes, each, each // MILLI, wish, min_runtime_ms, left_ms, 0]], dtype=np.int64)
    ask = int(asked.ask_of(waits, 0))

    assert (ask < 0) == (wish > 0)
    plain = int(asked.plain_of(ask))
    assert (asked.nodes_of(plain), asked.each_of(plain), asked.idle_of(plain)) == (nodes, each, int(min_runtime_ms == 0))
    assert asked.left_s_of(plain) == (asked.LEFT_MOST if left_ms == NEVER_MS else left_ms // 1_000)
