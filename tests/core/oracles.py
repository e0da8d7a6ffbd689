"""The kernels again, in the plainest Python there is: sorting, fractions, lists. Slow, obviously right, shares no code.

Each function here is what the docstring of its kernel calls the naive equivalent; ``test_kernels`` feeds both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from tests.strategies import Cluster, Trees

WHOLE = 1_000


def divide(amount: int, demands: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Water-fill ``amount`` over siblings: who asks least per weight is served first, the rest share by weight."""
    got = [0] * len(demands)
    left, open_ = amount, [i for i, demand in enumerate(demands) if demand > 0]
    for i in sorted((i for i in open_ if weights[i]), key=lambda i: (Fraction(demands[i], weights[i]), i)):
        weight_left = sum(weights[j] for j in open_)
        if demands[i] * weight_left > left * weights[i]:
            exact = [Fraction(left * weights[j], weight_left) for j in open_]
            parts = [int(part) for part in exact]
            by_remainder = sorted(range(len(open_)), key=lambda k: (parts[k] - exact[k], open_[k]))
            for k in by_remainder[: left - sum(parts)]:
                parts[k] += 1
            for j, part in zip(open_, parts, strict=True):
                got[j] = part
            return got
        got[i] = demands[i]
        left -= demands[i]
        open_.remove(i)
    for i in open_:  # nobody is entitled to what is left: budgets without a share take it in order
        got[i] = min(left, demands[i])
        left -= got[i]
    return got


def water_fill(tree: Trees, root: int, capacity: int, leaf_demand: Sequence[int]) -> dict[int, int]:
    """Return what every line of the pool gets, by recursion from the root."""

    def demand_of(row: int) -> int:
        below = tree.children_of(row)
        return min(capacity, sum(demand_of(child) for child in below) if below else leaf_demand[row])

    got = {root: demand_of(root)}

    def fill(row: int) -> None:
        below = tree.children_of(row)
        parts = divide(got[row], [demand_of(child) for child in below], [tree.weight[child] for child in below])
        got.update(zip(below, parts, strict=True))
        for child in below:
            fill(child)

    fill(root)
    return got


def allowances(
    leaves: Sequence[int],
    capacity: int,
    horizon_ms: int,
    demand: Sequence[int],
    entitled: Sequence[int],
    lag_us: Sequence[int],
    barred: Sequence[int],
) -> dict[int, int]:
    """Return the allowance of each leaf: entitled plus owed, then catch-up cut to what over-served leaves give up."""
    wanted = {}
    for leaf in leaves:
        owed = lag_us[leaf] // horizon_ms  # floor
        wanted[leaf] = 0 if barred[leaf] else max(0, min(demand[leaf], capacity, entitled[leaf] + owed))
    base = {leaf: min(wanted[leaf], entitled[leaf]) for leaf in leaves}
    extra = sum(wanted[leaf] - base[leaf] for leaf in leaves)
    given_up = sum(entitled[leaf] - base[leaf] for leaf in leaves)
    if extra <= given_up:
        return wanted
    return {leaf: base[leaf] + (wanted[leaf] - base[leaf]) * given_up // extra for leaf in leaves}


def next_leaf(
    tree: Trees, root: int, allowance: Sequence[int], running: Sequence[int], ready: Sequence[int]
) -> int:
    """Return the leaf to serve next, from the root down to the largest (allowance - running) / weight."""

    def useful(row: int) -> bool:
        below = tree.children_of(row)
        return any(useful(child) for child in below) if below else ready[row] > 0

    if not useful(root):
        return -1
    row = root
    while below := [child for child in tree.children_of(row) if useful(child)]:
        row = min(below, key=lambda child: (-Fraction(allowance[child] - running[child], max(1, tree.weight[child])), child))
    return row


def funded_prefix(
    order: Sequence[int], leaf: Sequence[int], milli: Sequence[int], allowance: Sequence[int]
) -> dict[int, tuple[bool, int]]:
    """Return per run (funded, funded milli-GPU before it): a prefix of each leaf's runs, the last one by half."""
    told = {}
    for budget in sorted({leaf[run] for run in order}):
        before, open_ = 0, True
        for run in (run for run in order if leaf[run] == budget):
            open_ = open_ and before + Fraction(milli[run], 2) <= allowance[budget]
            told[run] = (open_, before)
            before += milli[run] if open_ else 0
    return told


def place(
    ends: list[tuple[int, int]], lag_us: int, entitled: int, running: int, capped: bool, milli: int, horizon_ms: int, last_ms: int
) -> tuple[int, int] | None:
    """Return (milliseconds from now, spare GPU time) of a head above its allowance, tried one after the other; None = never.

    ``ends`` are (milliseconds from now, milli-GPU) of its runs. The instant is the first with ``2 r + s <= 2 (a + L / tau)``.
    """
    for at_ms in range(last_ms):
        for end_ms, milli_over in ends:
            running -= milli_over if end_ms == at_ms else 0
        spare_us = lag_us + (2 * (entitled - running) - milli) * horizon_ms // 2
        if spare_us >= 0:
            return at_ms, spare_us
        lag_us += min(entitled - running, 0 if capped else entitled)
    return None


def plan(free: list[int], whole: list[int], milli: list[int], nodes: list[int], buckets: list[int]) -> list[int]:
    """Return the bucket in which each starts, one after the other, -1 = in none: the first from which all of its time is left."""
    starts = []
    for k in range(len(milli)):
        starts.append(-1)
        for start in range(len(free)):
            window = range(start, min(start + buckets[k], len(free)))
            if all(free[t] >= milli[k] and whole[t] >= nodes[k] for t in window):
                for t in window:
                    free[t] -= milli[k]
                    whole[t] -= nodes[k]
                starts[k] = start
                break
    return starts


def queue_order(rows: Sequence[int], budget: Sequence[int], priority: Sequence[int], seq: Sequence[int]) -> list[int]:
    """Return workloads in the order of the queue."""
    return sorted(rows, key=lambda row: (budget[row], -priority[row], seq[row]))


def queue_parts(lines: Sequence[int], count: int) -> list[tuple[int, int]]:
    """Return, for each of ``count`` budget rows, from where and up to where it stands in the queue; 0, 0 where it does not."""
    places = [[place for place, line in enumerate(lines) if line == b] for b in range(count)]
    return [(held[0], held[-1] + 1) if held else (0, 0) for held in places]


@dataclass(frozen=True)
class Wants:
    """What a shape asks for beside nodes and GPUs."""

    loose: bool = False
    within: Sequence[int] | None = None  # label per node: all of its nodes have the same
    near: Sequence[int] | None = None  # label per node: its nodes should have few
    room: Sequence[int] | None = None  # how many parts each node may serve by all but its GPUs
    memory: Sequence[bool] | None = None  # of each GPU: whether its memory would do for the fraction
    block: bool = False  # contiguous and aligned
    place: Sequence[int] = ()  # of each node in the order of the topology; -1 = none


NO_WISH = Wants()


def fits(cluster: Cluster, pool: int, nodes: int, milli_per_node: int, mine: int, wants: Wants) -> bool:
    """Tell whether the shape fits now."""
    if milli_per_node < WHOLE:
        return any(
            cluster.used[gpu] + milli_per_node <= WHOLE and not cluster.out[gpu] and cluster.held[gpu] in (0, mine)
            for n in range(cluster.nodes)
            if cluster.node_pool[n] == pool and not cluster.node_masked[n] and (wants.room is None or wants.room[n] >= 1)
            for gpu in range(int(cluster.node_first[n]), int(cluster.node_first[n] + cluster.node_gpus[n]))
            if wants.memory is None or wants.memory[gpu]
        )
    if wants.block:
        return bool(blocks(cluster, pool, nodes, milli_per_node, mine, wants))
    return fewest_domains(cluster, pool, nodes, milli_per_node, mine, wants) is not None


def blocks(cluster: Cluster, pool: int, nodes: int, milli_per_node: int, mine: int, wants: Wants) -> list[list[int]]:
    """Return the GPU rows of each block that is free: aligned on a node, or whole nodes whose places are aligned."""
    need = milli_per_node // WHOLE
    free = {
        n: free_positions(cluster, n, mine)
        for n in range(cluster.nodes)
        if cluster.node_pool[n] == pool and not cluster.node_masked[n] and (wants.room is None or wants.room[n] >= 1)
    }
    if nodes == 1:
        return [
            [int(cluster.node_first[n]) + position for position in range(start, start + need)]
            for n, positions in free.items()
            for start in range(0, 72, need)
            if set(range(start, start + need)) <= set(positions)
        ]
    whole = [n for n, positions in free.items() if len(positions) == need == cluster.node_gpus[n]]
    at = {wants.place[n]: n for n in whole}
    found = []
    for start in range(0, max(at, default=0) + 1, nodes):
        group = [at[place] for place in range(start, start + nodes) if place in at]
        together = wants.within is None or len({wants.within[n] for n in group}) == 1
        if len(group) == nodes and together:
            found.append([int(cluster.node_first[n]) + position for n in group for position in range(need)])
    return found


def fewest_domains(
    cluster: Cluster, pool: int, nodes: int, milli_per_node: int, mine: int, wants: Wants
) -> int | None:
    """Return in how few domains the shape fits now, by trying all sets of nodes; None = in no set."""
    need, best = milli_per_node // WHOLE, None
    able = {}
    for n in range(cluster.nodes):
        if cluster.node_pool[n] == pool and not cluster.node_masked[n]:
            free = len(free_positions(cluster, n, mine))
            able[n] = free if wants.loose else int(free >= need)
            able[n] = able[n] if wants.room is None else max(0, min(able[n], wants.room[n]))
    for size in range(1, len(able) + 1):
        for group in combinations(able, size):
            together = wants.within is None or len({wants.within[n] for n in group}) == 1
            if together and all(able[n] for n in group) and sum(able[n] for n in group) >= nodes:
                count = len({wants.near[n] for n in group}) if wants.near is not None else 1
                best = count if best is None else min(best, count)
    return best


def least_victims(
    cluster: Cluster,
    nodes: int,
    milli_per_node: int,
    pieces: Sequence[Sequence[tuple[int, int]]],
    eligible: Sequence[int],
    leaf: Sequence[int],
    room: Sequence[int],
    cost: Sequence[Sequence[int]],
    wants: Wants = NO_WISH,
    left: Callable[[list[int]], dict[str, Any]] | None = None,
) -> tuple[int, ...] | None:
    """Return the least cost of runs whose end makes the shape fit, of all subsets; () = it fits as it is, None = no subset.

    ``pieces`` lists (GPU row, milli) per run. Of a leaf at most what ``room`` says: 2 * given - smallest < room. ``left`` tells
    what ``wants`` becomes when runs are gone.
    """
    best: tuple[int, ...] | None = None
    size = [sum(amount for _gpu, amount in held) for held in pieces]
    able = [run for run in range(len(pieces)) if eligible[run]]
    for mask in range(1 << len(able)):
        runs = [run for k, run in enumerate(able) if mask >> k & 1]
        by_leaf = [[size[run] for run in runs if leaf[run] == y] for y in range(len(room))]
        if any(given and 2 * sum(given) - min(given) >= room[y] for y, given in enumerate(by_leaf)):
            continue
        if runs and sum(size[run] for run in runs) > nodes * milli_per_node + max(size[run] for run in runs):
            continue
        after = replace(cluster, used=cluster.used.copy())
        for run in runs:
            for gpu, amount in pieces[run]:
                after.used[gpu] -= amount
        now = replace(wants, **left(runs)) if left is not None else wants
        if not fits(after, 0, nodes, milli_per_node, 1, now):
            continue
        if not runs:
            return ()
        total = tuple(sum(cost[run][k] for run in runs) for k in range(len(cost[0])))
        best = total if best is None else min(best, total)
    return best


def free_positions(cluster: Cluster, node: int, mine: int) -> list[int]:
    """Return the positions of a node's whole GPUs that ``mine`` may use now."""
    first = int(cluster.node_first[node])
    return [
        position
        for position in range(int(cluster.node_gpus[node]))
        if cluster.used[first + position] == 0
        and not cluster.out[first + position]
        and cluster.held[first + position] in (0, mine)
    ]


def find_gpus(cluster: Cluster, pool: int, nodes: int, milli_per_node: int, mine: int) -> list[int]:
    """Return the GPU rows for the shape, [] when it does not fit: fullest sufficient nodes, aligned blocks, fullest shared GPU."""
    usable = [n for n in range(cluster.nodes) if cluster.node_pool[n] == pool and not cluster.node_masked[n]]
    if milli_per_node < WHOLE:
        shared = [
            gpu
            for n in usable
            for gpu in range(int(cluster.node_first[n]), int(cluster.node_first[n] + cluster.node_gpus[n]))
            if not cluster.out[gpu] and cluster.held[gpu] in (0, mine)
            if 0 < cluster.used[gpu] <= WHOLE - milli_per_node
        ]
        if shared:
            return [min(shared, key=lambda gpu: (-cluster.used[gpu], usable_rank(cluster, usable, gpu), gpu))]
    need = max(1, milli_per_node // WHOLE)
    free = {n: free_positions(cluster, n, mine) for n in usable}
    able = sorted((n for n in usable if len(free[n]) >= need), key=lambda n: (len(free[n]), n))
    if len(able) < nodes:
        return []
    return [int(cluster.node_first[n]) + position for n in able[:nodes] for position in choose(free[n], need)]


def usable_rank(cluster: Cluster, usable: Sequence[int], gpu: int) -> int:
    """Return the place of the GPU's node among the usable ones."""
    return next(
        rank for rank, n in enumerate(usable) if cluster.node_first[n] <= gpu < cluster.node_first[n] + cluster.node_gpus[n]
    )


def choose(free: Sequence[int], need: int) -> list[int]:
    """Return ``need`` of a node's free positions: an aligned block when there can be one, else the lowest."""
    if need.bit_count() == 1:
        for start in range(0, max(free) + 1, need):
            block = list(range(start, start + need))
            if set(block) <= set(free):
                return block
    return list(free[:need])


def nodes_able(cluster: Cluster, pool: int, need: int, healthy_only: bool) -> int:
    """Return how many nodes of the pool have ``need`` GPUs when empty."""
    count = 0
    for n in range(cluster.nodes):
        first = int(cluster.node_first[n])
        size = sum(1 for gpu in range(first, first + int(cluster.node_gpus[n])) if not (healthy_only and cluster.out[gpu]))
        count += int(cluster.node_pool[n] == pool and size >= need)
    return count


def ready_times(
    cluster: Cluster, pool: int, need: int, now_ms: int, never_ms: int, gpu_free_ms: Sequence[int], *, block: bool = False
) -> list[int]:
    """Return per node the instant at which ``need`` of its GPUs in service, held for nobody, are free, or an aligned ``block``."""
    ready = []
    for n in range(cluster.nodes):
        first = int(cluster.node_first[n])
        times = sorted(
            gpu_free_ms[gpu]
            for gpu in range(first, first + int(cluster.node_gpus[n]))
            if not cluster.out[gpu] and not cluster.held[gpu]
        )
        if block:
            starts = range(0, int(cluster.node_gpus[n]) - need + 1, need)
            whole = [range(first + start, first + start + need) for start in starts]
            fine = [gpus for gpus in whole if not any(cluster.out[gpu] or cluster.held[gpu] for gpu in gpus)]
            last = min((max(gpu_free_ms[gpu] for gpu in gpus) for gpus in fine), default=never_ms)
            ready.append(max(now_ms, last) if cluster.node_pool[n] == pool else never_ms)
            continue
        able = cluster.node_pool[n] == pool and len(times) >= need
        ready.append(max(now_ms, times[need - 1]) if able else never_ms)
    return ready
