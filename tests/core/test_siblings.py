"""Who is next among siblings, found in heaps while thousands start in a row, is who a walk over the children finds."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from apportion.core.kernels import serve
from apportion.core.kernels.serve import siblings
from tests.strategies import column

I64 = NDArray[np.int64]


def lines_of(parents: list[int], weights: list[int], allowed: I64, ready: list[int]) -> serve.Lines:
    """Return lines of a tree with these parents, each a lower row than its children."""
    rows, none = len(parents), np.zeros(len(parents), dtype=np.int64)
    children = column([parents.count(row) for row in range(rows)])
    first_child, next_sibling, best = (np.full(rows, -1, dtype=np.int64) for _column in range(3))
    serve.children(rows, 0, none, column(parents), first_child, next_sibling)
    ends = column([one if not children[row] else -1 for row, one in enumerate(ready)])
    return serve.Lines(
        column(parents), children, first_child, next_sibling, column(weights), none, none, none, none, none, none, none, none,
        allowed, none, best, ends,
    )  # fmt: skip


@settings(derandomize=True, max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.booleans())
def test_heaps_of_siblings_serve_whom_a_walk_over_all_serves(dice: st.random.Random, rows: int, flat: bool) -> None:
    parents = [-1] + [0 if flat else dice.randrange(row) for row in range(1, rows)]
    weights = [dice.choice([0, 1, 1, 2, 7, 1_000_000]) for _row in range(rows)]
    allowed = column([dice.choice([0, 3, 3, 500, 10_000]) for _row in range(rows)])
    lines = lines_of(parents, weights, allowed, [dice.randrange(3) for _row in range(rows)])
    taken, made = column([dice.randrange(4) for _row in range(rows)]), siblings.no_siblings(rows)
    serve.choose_all(lines, allowed, taken)
    leaf = serve.next_leaf(lines, 0)
    for _start in range(60):
        if leaf < 0 or not lines.ready[leaf]:
            break
        milli, line = dice.choice([0, 1, 1, 250, 8_000]), leaf
        while line >= 0:
            taken[line] += milli
            line = parents[line]
        lines.ready[leaf] = int(dice.randrange(4) > 0)
        walked = lines._replace(best=lines.best.copy())

        serve.choose_above(walked, allowed, taken, leaf)
        siblings.choose_beside(
            made, leaf, lines.parent, lines.first_child, lines.next_sibling, lines.children, lines.weight, lines.best, lines.ready,
            allowed, taken,
        )  # fmt: skip

        assert lines.best.tolist() == walked.best.tolist()
        leaf = serve.next_leaf(lines, 0)


@pytest.mark.parametrize("off", ["0", "1"])
def test_to_fetch_a_cell_changes_nothing_compiled_or_not(off: str) -> None:
    code = (
        "import numpy as np; from numba import njit; from apportion.core.kernels.fetch import fetch; cells = np.arange(6)\n"
        "@njit\ndef ask(cells):\n    fetch(cells, 5)\n    return cells.sum()\nprint(ask(cells), cells.tolist())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env={**os.environ, "NUMBA_DISABLE_JIT": off}
    )

    assert told.stdout == "15 [0, 1, 2, 3, 4, 5]\n"
