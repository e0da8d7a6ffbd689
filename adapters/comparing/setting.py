"""The setting of the bench: 1,024 GPUs in 128 nodes, four programs with nine budgets, protected time and horizon of one hour.

Decides the opening events of the log, and nothing later. A pure function of the setting; ``play`` publishes what it returns.
Programs hold 35, 30, 20 and 15 % of the pool; the largest power of two below a budget's GPUs is at most 0.72 of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from apportion.adapters.simulation.stated import LEADER, OPERATOR, Stated, stated
from apportion.core.events import BudgetSet, Event, LogOpened, NodeJoined, PolicyActivated, PoolDefined
from apportion.core.units import MILLI, MS_PER_DAY, MS_PER_HOUR, PPM

MINUTE_MS = 60_000
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

Tree = tuple[tuple[str, int], ...]

PROGRAMS: Tree = (
    ("llm", 350_000),
    ("vision", 300_000),
    ("science", 200_000),
    ("safety", 150_000),
    ("llm/base", 500_000),
    ("llm/tuning", 300_000),
    ("llm/evals", 200_000),
    ("vision/video", 600_000),
    ("vision/maps", 400_000),
    ("science/proteins", 500_000),
    ("science/climate", 500_000),
    ("safety/probes", 600_000),
    ("safety/audits", 400_000),
)


class Setting(NamedTuple):
    """Cluster, tree (path, ppm of its parent; parents first) and rules."""

    policy: str = "fair"
    nodes: int = 128
    gpus_per_node: int = 8
    tree: Tree = PROGRAMS
    quantum_ms: int = MS_PER_HOUR
    horizon_ms: int = MS_PER_HOUR
    cycle_ms: int = MINUTE_MS
    restart_ms: int = 3 * MINUTE_MS
    pool: str = "h100"

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    def leaves(self) -> tuple[str, ...]:
        """Return the budgets that workloads charge, in the order of the tree."""
        above = {path.rpartition("/")[0] for path, _ppm in self.tree}
        return tuple(path for path, _ppm in self.tree if path not in above)

    def share_ppm(self, path: str) -> int:
        """Return the part of the pool a budget is entitled to."""
        shares = dict(self.tree)
        ppm = PPM
        while path:
            ppm = ppm * shares[path] // PPM
            path = path.rpartition("/")[0]
        return ppm

    def guarantee_milli(self, path: str) -> int:
        """Return the milli-GPU a budget is entitled to."""
        return self.gpus * MILLI * self.share_ppm(path) // PPM


def node_name(position: int) -> str:
    """Return the name of a node, also its agent's principal."""
    return f"node{position + 1:04d}"


def opening(setting: Setting) -> list[Stated]:
    """Return the first events of the log, all at ``START_MS``."""
    policy: Any = setting.policy  # a name the core refuses is told by the core
    rules = PolicyActivated(
        pool=setting.pool,
        policy=policy,
        quantum_ms=setting.quantum_ms,
        horizon_ms=setting.horizon_ms,
        heartbeat_timeout_ms=MS_PER_DAY,
        reason="setting of the bench",
    )
    events: list[tuple[str, Event]] = [
        (OPERATOR, LogOpened(log_id="fairness", time_source="stated", operators=(OPERATOR, LEADER))),
        (OPERATOR, PoolDefined(pool=setting.pool, gpu_class=setting.pool)),
        (OPERATOR, rules),
    ]
    events.extend(
        (OPERATOR, BudgetSet(pool=setting.pool, budget=path, share_ppm=ppm)) for path, ppm in setting.tree
    )
    for position in range(setting.nodes):
        name = node_name(position)
        events.append((OPERATOR, NodeJoined(node=name, pool=setting.pool, gpus=setting.gpus_per_node, agent=name)))
    return [stated(START_MS, who, event, f"opening.{number}") for number, (who, event) in enumerate(events, 1)]
