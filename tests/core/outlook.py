"""What is known after a record of how lags will grow until the next one: held, waiting, shares, and what is planned.

``Outlook`` is a copy, taken from single runs, workloads and lines, so that it can be carried forward over planned changes while
the core has gone on. ``Timeline`` is a watcher that keeps its own account of entitlements from the events alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from apportion.core import events as ev
from apportion.core.decisions import CycleBatch
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.state import schema
from apportion.core.state.state import State
from tests.core.invariants import in_progress, path_of
from tests.core.oracles import water_fill
from tests.core.story import Accepted
from tests.strategies import Trees


class Outlook:
    """Carried forward by ``step`` at each planned instant; ``rates`` are those that hold until the next one."""

    def __init__(self, state: State, before: Outlook | None) -> None:
        budget, rows = state.budget, range(state.budget.used)
        self.tree = Trees(
            [int(budget.pool[row]) for row in rows], [int(budget.parent[row]) for row in rows],
            [int(budget.share_ppm[row]) for row in rows], [int(root) for root in state.pool.column("root")],
        )  # fmt: skip
        self.paths = [path_of(state, row) for row in rows]
        self.leaves = [row for row in rows if not budget.children[row]]
        self.closed = [bool(budget.closed[row]) for row in rows]
        self.barred = [bool(budget.barred[row]) for row in rows]
        self.granted = {row: int(budget.granted_us[row]) for row in rows if budget.metered[row]}
        self.running: Counter[int] = Counter()
        self.waiting: Counter[int] = Counter()
        self.promises: list[tuple[int, int, int]] = []  # line, milli, until_ms
        for run in in_progress(state):
            line, milli = int(state.run.budget[run]), int(state.run.gpus_milli[run])
            if not state.run.idle_cycles[run]:
                self.running[line] += milli
            if state.run.reserved[run]:
                self.promises.append((line, milli, int(state.run.protected_until_ms[run])))
        for row in state.workload.live_rows():
            if int(state.workload.state[row]) in (schema.PENDING, schema.HELD) and state.workload.min_runtime_ms[row]:
                self.waiting[int(state.workload.budget[row])] += int(state.workload.gpus_milli[row])
        table = state.planned
        self.planned = sorted(
            (int(table.at_ms[row]), int(table.budget[row]), int(table.share_ppm[row]), bool(table.closed[row]))
            for row in table.live_rows()
        )
        if before is not None and 0 < state.counters.planned_ms <= state.counters.time_ms:
            # a heartbeat does not look at budgets: what came true since is not in the state yet
            self.tree.weight, self.closed, self.barred = before.tree.weight, before.closed, before.barred
            self.planned = before.planned

    def step(self, at_ms: int, charged_us: Callable[[int], int]) -> None:
        """Let what is planned for ``at_ms`` come true, and look again who is barred."""
        for when_ms, line, share_ppm, closed in self.planned:
            if when_ms == at_ms:
                self.tree.weight[line], self.closed[line] = share_ppm, closed
        self.planned = [change for change in self.planned if change[0] > at_ms]
        spent = [False] * self.tree.rows
        for line, granted in self.granted.items():
            promised = sum(
                milli * max(0, until_ms - at_ms) for leaf, milli, until_ms in self.promises if line in self.paths[leaf]
            )
            spent[line] = granted - charged_us(line) <= promised
        self.barred = [any(self.closed[above] or spent[above] for above in path) for path in self.paths]

    def idle(self, leaf: int) -> bool:
        """Tell whether a leaf has no demand."""
        return not self.running[leaf] and not self.waiting[leaf]

    def rates(self) -> dict[int, int]:
        """Return per line what it would get of the delivered GPUs, less what it holds; a barred line's waiting does not count."""
        demand = [
            self.running[row] + (0 if self.barred[row] else self.waiting[row]) for row in range(self.tree.rows)
        ]
        rates: dict[int, int] = {}
        for pool, root in enumerate(self.tree.root):
            leaves = self.tree.leaves(pool)
            due = water_fill(self.tree, root, sum(self.running[leaf] for leaf in leaves), demand)
            held = {row: sum(self.running[leaf] for leaf in leaves if row in self.paths[leaf]) for row in due}
            rates |= {row: due[row] - held[row] for row in due}
        return rates


class Timeline:
    """Watcher: at every instant a line is entitled to what the last event that covers the instant said, now and as planned."""

    def __init__(self) -> None:
        self.said: dict[str, list[tuple[int, int, int, bool]]] = {}  # per line: from, until (0 = no end), share, closed
        self.accepted = Accepted("budget.set", "budget.closed")
        self.time_ms = 0

    def after(self, core: Core, record: Record, batch: CycleBatch | None) -> None:
        """Take an accepted event in, and compare all lines."""
        if (event := self.accepted.event(core, record)) is not None:
            self._take(core.time_ms, event)
        self._compare(core.state)

    def _take(self, now_ms: int, event: ev.Event) -> None:
        if isinstance(event, ev.BudgetSet):
            said = (max(now_ms, event.from_ms), event.until_ms, event.share_ppm, False)
            self.said.setdefault(f"{event.pool}:{event.budget}", []).append(said)
        elif isinstance(event, ev.BudgetClosed):
            self.said[f"{event.pool}:{event.budget}"].append((now_ms, 0, 0, True))

    def at(self, line: str, at_ms: int) -> tuple[int, bool]:
        """Return (share, closed) as the events say; what is closed has no share.

        Where none of them says anything a line is closed before the first that was told begins, and open with no share after it.
        """
        for from_ms, until_ms, share_ppm, closed in reversed(self.said[line]):
            if from_ms <= at_ms and (not until_ms or at_ms < until_ms):
                return 0 if closed else share_ppm, closed
        return 0, at_ms < self.said[line][0][0]

    def _compare(self, state: State) -> None:
        budget, table = state.budget, state.planned
        due = 0 < state.counters.planned_ms <= state.counters.time_ms  # a heartbeat does not look at budgets
        instants = sorted({state.counters.time_ms, *(int(table.at_ms[row]) for row in table.live_rows())})
        for row in range(budget.used):
            if (line := budget.keys[row]) not in self.said:
                continue
            now = (0 if budget.closed[row] else int(budget.share_ppm[row]), bool(budget.closed[row]))
            for at_ms in instants:
                for planned in table.live_rows():
                    if int(table.budget[planned]) == row and int(table.at_ms[planned]) == at_ms:
                        closed = bool(table.closed[planned])
                        now = (0 if closed else int(table.share_ppm[planned]), closed)
                if not due or at_ms > state.counters.time_ms:
                    assert now == self.at(line, at_ms), f"{line} at {at_ms}: {now}, the events say {self.at(line, at_ms)}"
        for parent in range(budget.used):
            below = [
                budget.keys[row] for row in range(budget.used) if int(budget.parent[row]) == parent and not budget.user[row]
            ]  # fmt: skip
            for at_ms in instants:
                open_ = [line for line in below if not self.at(line, at_ms)[1]]
                total = sum(self.at(line, at_ms)[0] for line in open_)
                assert total <= 1_000_000, f"below {budget.keys[parent]} at {at_ms}: {total} ppm"
                above = budget.keys[parent]
                assert not open_ or above not in self.said or not self.at(above, at_ms)[1], f"{open_} open in a closed {above}"
