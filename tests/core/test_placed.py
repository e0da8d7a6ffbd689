"""What starts say in columns is what each of them would say by itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.core.kernels import placed, serve
from apportion.core.kernels.serve.columns import BUDGET, EACH, MIN_RUNTIME_MS, NODES
from apportion.core.state.queue import empty_waits
from apportion.core.units import MILLI
from tests.strategies import column

NODE_GPUS, NOW_MS = 4, 1_000_000


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from([0, 50, 900]))
def test_columns_say_what_each_start_says(dice: st.random.Random, count: int, quantum_ms: int) -> None:
    waits, rows = empty_waits(2 * count), dice.sample(range(2 * count), count)
    run_no, progress_ms = (column([dice.randrange(3) for _row in range(2 * count)]) for _column in range(2))
    whys, held = [dice.choice([serve.WITHIN_ALLOWANCE, serve.ABOVE_ALLOWANCE]) for _start in rows], list[list[int]]()
    for row in rows:
        nodes, each = dice.choice([(1, 250), (1, 1_000), (1, 2_000), (2, 1_000), (3, 4_000)])
        waits[row, BUDGET], waits[row, NODES], waits[row, EACH] = dice.randrange(5), nodes, each
        waits[row, MIN_RUNTIME_MS] = dice.choice([0, 40, 800])
        firsts = dice.sample(range(8), nodes)
        held.append([one * NODE_GPUS + gpu for one in firsts for gpu in range(max(1, each // MILLI))])
    gpus, first = column([gpu for one in held for gpu in one]), np.cumsum([0, *map(len, held)])
    nobody, said = np.zeros(count, dtype=np.int64), placed.said_of(count, len(gpus))
    starts = serve.Starts(column(rows), column(whys), nobody, first, gpus, nobody, nobody)

    pieces = placed.tell(
        starts, count, NOW_MS, quantum_ms, waits, run_no, progress_ms, np.arange(32) // NODE_GPUS, np.arange(32) % NODE_GPUS, said
    )

    for k, (row, why) in enumerate(zip(rows, whys, strict=True)):
        leaf, nodes, each, min_runtime_ms = (int(waits[row, what]) for what in (BUDGET, NODES, EACH, MIN_RUNTIME_MS))
        funded = why == serve.WITHIN_ALLOWANCE
        protected_ms, reserved_us = min(min_runtime_ms, quantum_ms), 0
        if funded:
            protected_ms, reserved_us = min_runtime_ms, nodes * each * min_runtime_ms
        assert [int(values[k]) for values in said[:8]] == [
            leaf, nodes * each, run_no[row] + 1, progress_ms[row], NOW_MS + protected_ms, reserved_us, reserved_us > 0, funded
        ]  # fmt: skip
        mine = range(int(said.first_piece[k]), int(said.first_piece[k + 1]))
        parts = [gpus[said.first_gpu[piece] : said.first_gpu[piece + 1]].tolist() for piece in mine]
        assert [gpu for part in parts for gpu in part] == held[k]
        assert [part[0] // NODE_GPUS for part in parts] == said.node[mine.start : mine.stop].tolist()
        assert all(len(part) == max(1, each // MILLI) for part in parts)
        assert said.piece_each[mine.start : mine.stop].tolist() == [min(MILLI, each)] * nodes
        of_mine = slice(int(first[k]), int(first[k + 1]))
        assert said.each[of_mine].tolist() == [min(MILLI, each)] * len(held[k])
        assert said.start[of_mine].tolist() == [k] * len(held[k])
        assert said.position[of_mine].tolist() == [gpu % NODE_GPUS for gpu in held[k]]
    assert pieces == said.first_piece[count]
