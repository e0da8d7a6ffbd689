"""Every kernel does what its naive equivalent does, on small random inputs and at the bounds of ``units``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apportion.core.kernels import accrue, pack, profile, queue, serve, share
from apportion.core.state.wishes import ANYWHERE, NO_ARRAY
from apportion.core.units import MAX_ELAPSED_MS, MAX_POOL_MILLI, MAX_PRIORITY, NEVER_MS, PPM, apportion, gpu_us
from tests.core import oracles
from tests.strategies import Cluster, Trees, clusters, column, milli, shapes, trees

quick = settings(derandomize=True, max_examples=40, deadline=None)
LAG = st.one_of(st.sampled_from([0, 1, -1, 3_600_000, -3_600_001]), st.integers(-(2**60), 2**60))


def shares(tree: Trees, data: st.DataObject, most: int) -> list[int]:
    return [data.draw(milli(most)) for _ in range(tree.rows)]


@quick
@given(trees(), st.data())
def test_water_fill_is_serving_in_order_of_demand_per_weight(tree: Trees, data: st.DataObject) -> None:
    capacity = data.draw(milli())
    demand = shares(tree, data, data.draw(st.sampled_from([8_000, MAX_POOL_MILLI])))
    root = data.draw(st.sampled_from(tree.root))
    filled = np.full(tree.rows, -7, dtype=np.int64)

    share.water_fill(
        root, capacity, tree.rows, column(tree.pool), column(tree.parent), column(tree.weight), column(demand), filled
    )

    expected = oracles.water_fill(tree, root, capacity, demand)
    assert {row: int(filled[row]) for row in expected} == expected
    assert all(filled[row] == -7 for row in range(tree.rows) if row not in expected), "rows of other pools are left alone"
    for row, got in expected.items():
        below = tree.children_of(row)
        assert not below or sum(expected[child] for child in below) == got, "exact on every level"


def test_water_fill_of_the_worked_example_by_hand() -> None:
    tree = Trees([0, 0, 0, 0], [-1, 0, 0, 0], [PPM, 500_000, 250_000, 250_000], [0])

    assert oracles.water_fill(tree, 0, 16_000, [0, 8_000, 12_000, 0]) == {0: 16_000, 1: 8_000, 2: 8_000, 3: 0}
    assert oracles.water_fill(tree, 0, 16_000, [0, 4_000, 12_000, 8_000]) == {0: 16_000, 1: 4_000, 2: 6_000, 3: 6_000}
    assert oracles.divide(2, [2, 2, 2], [1, 1, 1]) == [1, 1, 0]  # equal remainders: the earlier ones
    assert oracles.divide(5, [9, 0, 2, 2], [0, 3, 0, 1]) == [3, 0, 0, 2]  # no share: only what is left over, in order


@quick
@given(trees(), st.data())
def test_allowances_are_entitled_plus_owed_and_never_above_capacity(tree: Trees, data: st.DataObject) -> None:
    capacity = data.draw(milli())
    horizon_ms = data.draw(st.sampled_from([1_000, 3_600_000, 4 * 3_600_000]))
    demand = shares(tree, data, data.draw(st.sampled_from([8_000, MAX_POOL_MILLI])))
    lag = [data.draw(LAG) for _ in range(tree.rows)]
    barred = [data.draw(st.sampled_from([0, 0, 0, 1])) for _ in range(tree.rows)]
    allowed, wanted = np.full(tree.rows, -7, dtype=np.int64), np.full(tree.rows, -7, dtype=np.int64)
    for pool, root in enumerate(tree.root):
        fill = oracles.water_fill(tree, root, capacity, demand)
        entitled = [fill.get(row, 0) for row in range(tree.rows)]

        extra, room = share.allowances(
            root, capacity, horizon_ms, tree.rows, column(tree.pool), column(tree.child_counts()), column(demand),
            column(entitled), column(lag), column(barred), wanted, allowed,
        )  # fmt: skip

        leaves = tree.leaves(pool)
        expected = oracles.allowances(leaves, capacity, horizon_ms, demand, entitled, lag, barred)
        assert {leaf: int(allowed[leaf]) for leaf in leaves} == expected
        assert sum(expected.values()) <= fill[root] <= capacity
        above = {leaf: max(0, int(wanted[leaf]) - entitled[leaf]) for leaf in leaves}
        short = {leaf: max(0, entitled[leaf] - int(wanted[leaf])) for leaf in leaves}
        assert (extra, room) == (sum(above.values()), sum(short.values()))
        for leaf in leaves:
            scaled = extra > room and above[leaf]
            assert expected[leaf] == (entitled[leaf] + above[leaf] * room // extra if scaled else wanted[leaf])

        share.sum_up(root, tree.rows, column(tree.pool), column(tree.parent), column(tree.child_counts()), allowed)
        assert int(allowed[root]) == sum(expected.values())


@quick
@given(trees(), st.data())
def test_lag_grows_on_every_level_by_what_is_due_less_what_is_held(tree: Trees, data: st.DataObject) -> None:
    few = st.sampled_from([0, 0, 1, 1_000, 8_000, MAX_POOL_MILLI // 16])
    running, pending = ([data.draw(few) for _ in range(tree.rows)] for _ in range(2))
    barred = [data.draw(st.sampled_from([0, 0, 1])) for _ in range(tree.rows)]
    rates = np.full(tree.rows, -7, dtype=np.int64)
    for row in reversed(range(tree.rows)):
        if below := tree.children_of(row):
            running[row] = sum(running[child] for child in below)

    share.lag_rates(
        column(tree.root), len(tree.root), tree.rows, column(tree.pool), column(tree.parent), column(tree.weight),
        column(running), column(pending), column(barred), rates,
    )  # fmt: skip

    demand = [running[row] + (0 if barred[row] else pending[row]) for row in range(tree.rows)]
    for root in tree.root:
        due = oracles.water_fill(tree, root, running[root], demand)
        assert {row: int(rates[row]) for row in due} == {row: due[row] - running[row] for row in due}
        assert rates[root] == 0
    for row in range(tree.rows):
        assert not (barred[row] and not tree.children_of(row) and rates[row] > 0), "a barred leaf is never owed more"


@quick
@given(trees(), st.data())
def test_the_next_leaf_is_the_most_underserved_per_weight(tree: Trees, data: st.DataObject) -> None:
    few = st.sampled_from([0, 0, 1_000, 4_000, MAX_POOL_MILLI])
    allowance = [data.draw(few) for _ in range(tree.rows)]
    running = [data.draw(few) for _ in range(tree.rows)]
    ready = [data.draw(st.integers(0, 1)) for _ in range(tree.rows)]

    for root in tree.root:
        leaf = share.next_leaf(
            root, tree.rows, column(tree.pool), column(tree.parent), column(tree.child_counts()), column(tree.weight),
            column(allowance), column(running), column(ready),
        )  # fmt: skip

        assert leaf == oracles.next_leaf(tree, root, allowance, running, ready)


@quick
@given(trees(), st.data())
def test_the_walk_serves_in_the_same_order_when_only_one_path_is_chosen_anew(tree: Trees, data: st.DataObject) -> None:
    few = st.sampled_from([0, 0, 1_000, 4_000, MAX_POOL_MILLI])
    allowance, running = ([data.draw(few) for _ in range(tree.rows)] for _ in range(2))
    ready = [data.draw(st.integers(0, 1)) for _ in range(tree.rows)]

    for number, root in enumerate(tree.root):
        lines = lines_of(tree, number, allowance, running, ready)
        serve.choose_all(lines, lines.allowance, lines.running)
        while (leaf := serve.next_leaf(lines, root)) >= 0:
            assert leaf == oracles.next_leaf(tree, root, allowance, running, ready)
            ready[leaf] = lines.ready[leaf] = data.draw(st.integers(0, 1)) if running[leaf] < 8_000 else 0
            line = leaf
            while line >= 0:
                running[line] += 4_000
                lines.running[line] += 4_000
                line = tree.parent[line]
            serve.choose_above(lines, lines.allowance, lines.running, leaf)
        assert oracles.next_leaf(tree, root, allowance, running, ready) == -1


def lines_of(tree: Trees, pool: int, allowance: list[int], running: list[int], ready: list[int]) -> serve.Lines:
    nothing = column([0] * tree.rows)
    first, following = nothing.copy(), nothing.copy()
    serve.children(tree.rows, pool, column(tree.pool), column(tree.parent), first, following)
    return serve.Lines(
        column(tree.parent), column(tree.child_counts()), first, following, column(tree.weight), nothing, nothing, nothing, nothing,
        nothing, nothing, nothing, nothing, column(allowance), column(running), nothing - 1, column(ready),
    )  # fmt: skip


@quick
@given(st.integers(0, 80), st.integers(1, 4), st.data())
def test_funded_runs_are_a_prefix_and_half_is_enough(runs: int, budgets: int, data: st.DataObject) -> None:
    leaf = [data.draw(st.integers(0, budgets - 1)) for _ in range(runs)]
    size = [data.draw(st.sampled_from([1, 1_000, 4_000, 4_001, MAX_POOL_MILLI])) for _ in range(runs)]
    allowance = [data.draw(milli()) for _ in range(budgets)]
    priority, placed = ([data.draw(st.integers(0, 2)) for _ in range(runs)] for _ in range(2))
    seq = data.draw(st.permutations(range(runs)))
    walked = [data.draw(st.booleans()) for _ in range(runs)]
    within, before = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)

    least, most = np.empty(budgets, dtype=np.int64), np.empty(budgets, dtype=np.int64)
    walk = (
        np.array(walked, dtype=np.uint8), column(leaf), column(size), column(list(range(runs))), column(priority), column(placed),
        column(seq), budgets,
    )  # fmt: skip

    share.funded_runs(*walk, column(allowance), within, before, least, most)

    order = sorted((run for run in range(runs) if walked[run]), key=lambda run: (-priority[run], placed[run], seq[run]))
    told = oracles.funded_prefix(order, leaf, size, allowance)
    assert {run: (bool(within[run]), int(before[run])) for run in order} == told
    assert not any(within[run] for run in range(runs) if not walked[run])
    other, again = [data.draw(milli()) for _ in range(budgets)], np.zeros(runs, dtype=np.int64)
    stays = [int(least[leaf]) <= 2 * other[leaf] < int(most[leaf]) for leaf in range(budgets)]
    share.funded_runs(*walk, column(other), again, before, least, most)
    assert all(again[run] == within[run] for run in range(runs) if stays[leaf[run]])
    assert all(any(again[run] != within[run] for run in order if leaf[run] == line) for line in range(budgets) if not stays[line])


@quick
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 4)), max_size=4), st.booleans(), st.data())
def test_a_budget_saves_for_its_first_until_it_would_be_funded(
    listed: list[tuple[int, int]], capped: bool, data: st.DataObject
) -> None:
    running, entitled, milli = sum(size for _end, size in listed) + data.draw(st.integers(0, 3)), data.draw(st.integers(0, 9)), 6
    horizon_ms, lag_us = 100, data.draw(st.integers(-900, 300))
    allowance = entitled + lag_us // horizon_ms
    line, count = column([0]), len(listed)
    ends = serve.Ends(
        column([0 if count else -1]), column([0]), column([*range(1, count), -1]), column([0] * (count + 1)),
        column([size for _end, size in listed]), column(list(range(count))), column([0] * count), column([0] * count),
        column([max(1, end) for end, _size in listed]), column([0] * count),
    )  # fmt: skip
    lines = serve.Lines(
        line - 1, line, line, line, line, line, line, line, line, column([lag_us]), line, column([entitled]),
        column([allowance + int(capped)]), column([allowance]), column([running]), line, line,
    )  # fmt: skip
    waits = column([0, 1, milli, milli // 1_000, 0, 1, NEVER_MS, 0]).reshape(1, -1)
    jobs = serve.Jobs(line, line, np.zeros(1, dtype=np.uint8), line, line, column([2]), waits)
    found = column([0, 0, 0])

    serve.place(jobs, lines, ends, 0, 0, -1, 0, horizon_ms, found)

    if 2 * running + milli <= 2 * allowance:
        return  # it is funded, and saves nothing
    lag_us = min(lag_us, (allowance - entitled) * horizon_ms)
    over = [(max(1, end), size) for end, size in listed]
    expected = oracles.place(over, lag_us, entitled, running, capped, milli, horizon_ms, 4_000)
    if expected is not None:
        assert (int(found[0]), int(found[1]), int(found[2])) == (0, *expected)
    else:
        assert found[0] < 0 or found[1] >= 4_000


@quick
@given(st.integers(1, 12), st.data())
def test_a_plan_takes_the_earliest_time_that_is_left(count: int, data: st.DataObject) -> None:
    buckets = data.draw(st.sampled_from([1, 31, 32, 70]))
    steps = st.lists(st.integers(0, 3), min_size=buckets, max_size=buckets)
    nodes_free = np.cumsum(data.draw(steps))
    free = nodes_free * 2_000 + np.cumsum(data.draw(steps)) * 500
    nodes = [data.draw(st.integers(1, 3)) for _ in range(count)]
    each = [data.draw(st.sampled_from([250, 1_000, 2_000])) for _ in range(count)]
    takes = [data.draw(st.integers(1, 80)) for _ in range(count)]
    starts, left, whole = column([0] * count), column(free.tolist()), column(nodes_free.tolist())
    asked = [nodes[k] * each[k] for k in range(count)]

    profile.plan(
        column(list(range(count))), column(asked), column(nodes), column(each), np.zeros(count, dtype=np.bool_), 2_000,
        column(takes), left, whole, starts,
    )  # fmt: skip

    wanted = [nodes[k] if each[k] == 2_000 else 0 for k in range(count)]
    assert starts.tolist() == oracles.plan(free.tolist(), nodes_free.tolist(), asked, wanted, takes)
    assert min(left.min(), whole.min()) >= 0


@quick
@given(st.integers(0, 24), st.data())
def test_the_queue_is_sorted_whatever_comes_and_goes(rows: int, data: st.DataObject) -> None:
    budget = [data.draw(st.integers(0, 3)) for _ in range(rows)]
    priority = [data.draw(st.sampled_from([0, 0, 1, -1, MAX_PRIORITY, -MAX_PRIORITY])) for _ in range(rows)]
    seq = data.draw(st.permutations(range(rows)))
    columns = column(budget), column(priority), column(seq)
    array, asks, inside = np.zeros(rows + 1, dtype=np.int64), np.zeros(rows + 1, dtype=np.int64), list[int]()
    for row in data.draw(st.lists(st.integers(0, max(0, rows - 1)), max_size=3 * rows if rows else 0)):
        if row in inside:
            assert queue.remove(array, asks, len(inside), row, *columns)
            inside.remove(row)
        else:
            assert not queue.remove(array, asks, len(inside), row, *columns)
            queue.insert(array, asks, len(inside), row, 10 * row, *columns)
            inside.append(row)

        assert list(array[: len(inside)]) == oracles.queue_order(inside, budget, priority, seq)
        assert list(asks[: len(inside)]) == [10 * row for row in oracles.queue_order(inside, budget, priority, seq)]

    first, last = np.full(4, 9, dtype=np.int64), np.full(4, 9, dtype=np.int64)
    queue.parts(column([sum(budget[row] == b for row in inside) for b in range(4)]), first, last)
    order = oracles.queue_order(inside, budget, priority, seq)
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == oracles.queue_parts([budget[row] for row in order], 4)


@quick
@given(st.integers(0, 8), st.data())
def test_the_next_candidate_is_the_first_one_worth_trying(rows: int, data: st.DataObject) -> None:
    now_ms, instants_ms = 1_000, sorted(data.draw(st.sets(st.sampled_from([900, 1_500, 9_000]))))
    pick = st.sampled_from
    state = [data.draw(pick([2, 2, 2, 3, 4])) for _ in range(rows)]
    nodes = [data.draw(pick([1, 2])) for _ in range(rows)]
    per_node = [data.draw(pick([1_000, 8_000])) for _ in range(rows)]
    wish = [data.draw(pick([0, 0, 1])) for _ in range(rows)]
    min_runtime = [data.draw(pick([0, 60])) for _ in range(rows)]
    expected = [data.draw(pick([0, 500, 501, 9_999])) for _ in range(rows)]
    not_before = [data.draw(pick([0, 1_000, 1_001])) for _ in range(rows)]
    shape = st.tuples(pick([1, 2]), pick([1_000, 8_000]), pick([0, 1]), pick([1_000, 1_500, 1_501, 1 << 60]))
    failed = data.draw(st.lists(shape, max_size=3))
    table = np.zeros((4, 4), dtype=np.int64)
    for k, entry in enumerate(failed):
        table[k] = entry
    idle_cycles, start = data.draw(pick([0, 1])), data.draw(st.integers(0, rows))
    progress = [data.draw(pick([0, 400, 10_000])) for _ in range(rows)]
    head, head_ms, horizon_ms = data.draw(st.integers(-1, 2)), data.draw(pick([0, 1_500])), data.draw(pick([100, 700]))
    spare_us, in_time_free = data.draw(pick([0, 500_000, 501_000, 8_000_000])), data.draw(pick([0, 1]))
    instants = np.array(instants_ms, dtype=np.int64)

    found = queue.next_candidate(
        np.arange(max(1, rows), dtype=np.int64), start, rows, now_ms, instants, head, head_ms, spare_us, horizon_ms,
        in_time_free, idle_cycles, column(state), 2, column(nodes), column(per_node), column(wish), column(min_runtime),
        column(expected), column(progress), column(not_before), table, len(failed),
    )  # fmt: skip

    def over_by(row: int, instant_ms: int) -> bool:
        return expected[row] > 0 and now_ms + max(0, expected[row] - progress[row]) <= instant_ms

    def worth(row: int) -> bool:
        if not idle_cycles and head not in (-1, row):
            used_ms = 0 if in_time_free else max(0, expected[row] - progress[row])
            if not over_by(row, head_ms):
                used_ms = max(0, head_ms - now_ms) + horizon_ms
            if nodes[row] * per_node[row] * used_ms > spare_us:
                return False
        hopeless = any(
            (n, m, w) == (nodes[row], per_node[row], wish[row])
            and all(end_ms <= at_ms or not over_by(row, at_ms) for at_ms in instants_ms)
            for n, m, w, end_ms in failed
        )
        return state[row] == 2 and not_before[row] <= now_ms and (min_runtime[row] == 0) == bool(idle_cycles) and not hopeless

    assert found == next((row for row in range(start, rows) if worth(row)), -1)


@settings(quick, max_examples=80)
@given(clusters(), shapes(), st.integers(1, 3))
def test_find_gpus_is_best_fit_with_aligned_blocks(cluster: Cluster, shape: tuple[int, int], mine: int) -> None:
    nodes, per_node = shape
    chosen = np.full(nodes * 72, -7, dtype=np.int64)

    count = pack.find_gpus(
        0, nodes, per_node, 0, 0, 0, mine, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus,
        np.zeros_like(cluster.node_gpus), cluster.node_masked, cluster.used, np.zeros_like(cluster.used), cluster.out,
        cluster.held, *ANYWHERE, NO_ARRAY, chosen,
    )  # fmt: skip

    gpus = [int(gpu) for gpu in chosen[:count]]
    assert gpus == oracles.find_gpus(cluster, 0, nodes, per_node, mine)
    assert len(gpus) in (0, nodes * max(1, per_node // 1_000)), "all or nothing"
    for gpu in gpus:
        assert not cluster.out[gpu]
        assert cluster.held[gpu] in (0, mine)
        assert cluster.used[gpu] + min(1_000, per_node) <= 1_000


@quick
@given(clusters(), st.integers(1, 9), st.booleans())
def test_most_parts_of_an_even_shape_is_the_nodes_that_could_hold_one_empty(cluster: Cluster, need: int, healthy: bool) -> None:
    able = pack.most_parts(
        0, 1, need, 0, 0, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, cluster.out, *ANYWHERE[:3],
        int(healthy),
    )  # fmt: skip

    assert able == oracles.nodes_able(cluster, 0, need, healthy)


@quick
@given(clusters(), st.integers(1, 9), st.integers(0, 1), st.data())
def test_ready_times_are_the_need_th_release_or_that_of_a_block(
    cluster: Cluster, need: int, block: int, data: st.DataObject
) -> None:
    need = 1 << need // 3 if block else need
    free_ms = [data.draw(st.sampled_from([100, 100, 250, 900, 1 << 60])) for _ in cluster.used]
    ready = np.zeros(cluster.nodes, dtype=np.int64)

    pack.ready_times(
        0, need, block, 200, 1 << 60, cluster.nodes, cluster.node_pool, cluster.node_first, cluster.node_gpus, cluster.out,
        cluster.held, column(free_ms), ready,
    )  # fmt: skip

    assert list(ready) == oracles.ready_times(cluster, 0, need, 200, 1 << 60, free_ms, block=bool(block))


@quick
@given(st.lists(st.tuples(*[milli()] * 3, st.integers(-MAX_POOL_MILLI, MAX_POOL_MILLI)), min_size=1), st.data())
@example([(MAX_POOL_MILLI, MAX_POOL_MILLI, MAX_POOL_MILLI, -MAX_POOL_MILLI)], None)
def test_accrual_is_rate_times_time_exactly(rates: list[tuple[int, ...]], data: st.DataObject | None) -> None:
    elapsed_ms = MAX_ELAPSED_MS if data is None else data.draw(st.integers(1, MAX_ELAPSED_MS))
    columns = [column([rate[k] for rate in rates]) for k in range(4)]
    totals = [np.full(len(rates), 5, dtype=np.int64) for _ in range(7)]

    accrue.accrue_pools(len(rates), elapsed_ms, *columns, *totals[:4])
    accrue.accrue_budgets(len(rates), elapsed_ms, *columns[:2], columns[3], *totals[4:])

    for total, k in zip(totals, (0, 1, 2, 3, 0, 1, 3), strict=True):
        assert [int(amount) for amount in total] == [5 + rate[k] * elapsed_ms for rate in rates]


def test_the_bounds_keep_every_product_inside_int64() -> None:
    years_to_live = 8
    assert gpu_us(MAX_POOL_MILLI, MAX_ELAPSED_MS) * years_to_live < 2**63, "a full pool's account, step after step"
    assert MAX_POOL_MILLI * PPM * 2 < 2**63, "water-fill and order multiply capacity by weight"
    assert MAX_POOL_MILLI * MAX_POOL_MILLI < 2**63, "the cut of catch-up multiplies two capacities"


@pytest.mark.parametrize(
    ("gpus_milli", "elapsed_ms"), [(-1, 0), (0, -1), (MAX_POOL_MILLI, 2**40), (2**63, 2**63), (-(2**63), -(2**63))]
)
def test_money_outside_the_bounds_is_never_multiplied(gpus_milli: int, elapsed_ms: int) -> None:
    with pytest.raises(ValueError, match="outside the bounds"):
        gpu_us(gpus_milli, elapsed_ms)


@quick
@given(st.integers(0, 2**62), st.lists(st.integers(0, PPM), min_size=1, max_size=9))
def test_apportioned_parts_are_exact_and_within_one_of_fair(total: int, weights: list[int]) -> None:
    if not sum(weights):
        total = 0

    parts = apportion(total, weights)

    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * sum(weights) - total * weight) < max(1, sum(weights))
