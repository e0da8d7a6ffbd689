"""Nodes and runs of the simulated world, and which process uses which GPU. Plain data with its bookkeeping.

Decides nothing in time. It keeps the one physical truth a scheduler can get wrong: two processes on one GPU; that, and
other impossible decisions, go into ``complaints``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.adapters.simulation.people import Fate
from apportion.core.decisions import Piece
from apportion.core.events import Event


@dataclass(eq=False)
class Node:
    """A machine and what its agent knows."""

    name: str
    wire_name: bytes
    beat: int = 0
    present: bool = True  # False between leaving the pool and joining again
    alive: bool = True  # its processes live
    reachable: bool = True  # its reports reach the log
    down: tuple[int, ...] = ()  # unhealthy GPUs
    wire_down: bytes = b""
    busy_milli: int = 0
    memory_mib: int = 0
    list_runs: int = 0  # list runs in so many next beats
    runs: dict[str, Run] = field(default_factory=dict)  # that the agent has in hand, in order
    before_crash: list[Run] = field(default_factory=list)  # that it had
    late: list[Event] = field(default_factory=list)  # reports kept back by a blip


@dataclass(eq=False)
class Run:
    """An attempt as its agents see it. ``nodes[i]`` holds ``pieces[i]``; the first is the lead."""

    key: str
    workload: str
    number: int
    fate: Fate
    pieces: tuple[Piece, ...]
    nodes: list[Node]
    resume_from_ms: int
    holds: list[bool] = field(default_factory=list)  # per piece: its processes use the GPUs
    token: int = 0  # rises when what was planned for it no longer holds
    started: bool = False
    waits: bool = False  # to start, until all its nodes answer
    stuck: bool = False  # no progress any more: a peer or a GPU is gone
    over: bool = False  # the lead's process has ended, or was killed
    works_from_ms: int = 0
    stop_by_ms: int = 0  # it was asked to stop; SIGKILL is due

    def progress_ms(self, at_ms: int) -> int:
        """Return the useful time done at ``at_ms``, which is at least what it resumed from."""
        return self.resume_from_ms + max(0, at_ms - self.works_from_ms)

    def asleep(self, at_ms: int) -> bool:
        """Tell whether its processes do nothing."""
        return self.started and 0 <= self.fate.asleep_from_ms <= self.progress_ms(at_ms)


class Machines:
    """All nodes, and the processes on their GPUs."""

    def __init__(self, names: list[str]) -> None:
        self.nodes = [Node(name, name.encode()) for name in names]
        self.by_name = {node.name: node for node in self.nodes}
        self.complaints: list[str] = []
        self._users: dict[tuple[str, int], list[tuple[str, int]]] = {}  # (node, gpu) -> [(run, milli)]

    def hold(self, run: Run) -> None:
        """The run's processes take their GPUs."""
        for piece, node in zip(run.pieces, run.nodes, strict=True):
            for gpu in piece.gpus:
                users = self._users.setdefault((piece.node, gpu), [])
                users.append((run.key, piece.milli_each))
                if sum(milli for _key, milli in users) > 1_000:
                    self.complaints.append(f"GPU {gpu} of {piece.node} is used by {users} at once")
            self._load(run, piece, node, 1)
        run.holds = [True] * len(run.pieces)

    def release(self, run: Run, position: int) -> None:
        """The processes of one piece are gone; harmless when they are already."""
        if not run.holds or not run.holds[position]:
            return
        run.holds[position] = False
        piece = run.pieces[position]
        for gpu in piece.gpus:
            self._users[piece.node, gpu].remove((run.key, piece.milli_each))
        self._load(run, piece, run.nodes[position], -1)

    def on_gpu(self, node: Node, gpu: int) -> list[str]:
        """Return the keys of the runs whose processes use a GPU."""
        return [key for key, _milli in self._users.get((node.name, gpu), ())]

    @staticmethod
    def _load(run: Run, piece: Piece, node: Node, sign: int) -> None:
        milli = len(piece.gpus) * piece.milli_each
        node.busy_milli += sign * (run.fate.busy_milli * milli // 1_000)
        node.memory_mib += sign * (run.fate.memory_mib * milli // 1_000)
