"""The setting of the cycle's bench: nodes of 8 GPUs, 1,111 budgets in a tree of tens, and jobs with the sizes of the ITP trace.

Decides who asks for what; a pure function of the seed. ``MIX`` is the trace's count of jobs per size (69,351 jobs, see
``demo.generator``); it has no fractions, so a quarter of its jobs of one GPU ask for a part of one here: stated, not measured.
Four of five state their run time, drawn from the trace's durations; one in sixteen has a higher priority inside its budget. A
budget's jobs are drawn with equal chance for each of the thousand leaves.
"""

from __future__ import annotations

from collections.abc import Iterator

from apportion.adapters.comparing.setting import Setting, Tree
from apportion.adapters.demo.generator import DURATIONS_S, MARKS
from apportion.adapters.simulation.dice import Dice
from apportion.core.events import WorkloadSubmitted
from apportion.core.units import MILLI, PPM

WIDTH = 10
# milli-GPU of a job -> jobs in the trace; the first three are fractions, a quarter of what asks for one GPU there
MIX = {
    250: 4_807, 500: 4_807, 750: 4_806, 1_000: 43_262, 2_000: 1_483, 4_000: 2_371, 8_000: 7_009, 16_000: 381, 32_000: 354,
    64_000: 71,
}  # fmt: skip
NODE_MILLI = 8 * MILLI
MS_PER_SECOND = 1_000


def tree() -> Tree:
    """Return 1,110 budgets below the root, each with a tenth of its parent."""
    names = [f"b{number}" for number in range(WIDTH)]
    share = PPM // WIDTH
    top = [(one, share) for one in names]
    middle = [(f"{one}/{two}", share) for one in names for two in names]
    leaves = [(f"{one}/{two}/{three}", share) for one in names for two in names for three in names]
    return (*top, *middle, *leaves)


def setting_of(nodes: int) -> Setting:
    """Return a cluster of so many nodes with that tree; quantum and horizon of an hour."""
    return Setting(nodes=nodes, tree=tree())


def jobs(setting: Setting, seed: int) -> Iterator[WorkloadSubmitted]:
    """Yield submissions without end; equal seeds give equal ones."""
    dice, leaves = Dice(seed, "cycles"), setting.leaves()
    sizes = [milli for milli, count in MIX.items() for _job in range(count)]
    number = 0
    while True:
        number += 1
        milli = sizes[dice.below(len(sizes))]
        yield WorkloadSubmitted(
            workload=f"job-{number:07d}",
            budget=leaves[dice.below(len(leaves))],
            pools=(setting.pool,),
            gpus_milli=milli,
            nodes=max(1, milli // NODE_MILLI),
            expected_runtime_ms=_duration_ms(dice, milli) if dice.below(5) else 0,
            priority=int(not dice.below(16)),
        )


def _duration_ms(dice: Dice, milli: int) -> int:
    """Return a duration of the trace's jobs of that size, evenly between two of its marks."""
    thousandth = dice.below(MARKS[-1])
    at = max(position for position in range(len(MARKS) - 1) if MARKS[position] <= thousandth)
    marks = DURATIONS_S[max(1, milli // MILLI)]
    return dice.between(marks[at], marks[at + 1]) * MS_PER_SECOND
