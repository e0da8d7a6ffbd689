"""The search of the rolling horizon: which job starts at which step on which GPUs, and how many GPUs each service has at each step.

*Decode*: jobs in an order, each at the earliest step at which enough GPUs are left over all of its time and an aligned block of its
size is free over it. Of free blocks the one whose largest free aligned surrounding is the smallest, then the lowest ("buddy-tight":
large blocks stay whole). Services need no certain GPUs: they get what blocks leave, so only their number counts at a step.
*Curves* of services are integer sequences that change by at most ``cap`` per step; minimum and maximum of two such are such again,
which is why every cut and every raise below keeps the swap cap by itself.
*Search*: swaps and inserts of the order, and cuts and raises of the curves; a worse candidate is taken while it is not worse than
a threshold that falls to 0 (threshold accepting: Dueck and Scheuer, "Threshold accepting", J. Comput. Phys. 90, 1990), so many
candidates are tried and never so long: the same arguments give the same plan everywhere. Draws are of the multiplicative
congruential generator of Park and Miller ("Random number generators: good ones are hard to find", CACM 31, 1988), in int64.

Naive equivalents: ``tests/horizon/naive.py``. Pure functions of their arrays; ``core.horizon.planner`` owns and fills these.
What is never done: wall time, floats, and a kernel that reads a curve it was not given. Sums are bounded by ``instance.check``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]

# columns of a job
GPUS, DURATION, EARLIEST, LATEST, LAST, BUDGET, PRIORITY, COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
# columns of a service; STING: what a GPU-step not served costs, penalty and lost reward together
CAP, INITIAL, STING, FIELDS = 0, 1, 2, 3
WORD = 64
ALL = -1  # every GPU of a word is taken
OPEN = 0  # line of a board
# moves of the search, in 256ths
CURVE_MOVES, WANTED_MOVES = 80, 40
NEAR = 4
RIVALS = 2
TRIES = 4  # to find a pair of whom one at least is planned
LEVELS = 11  # sizes, from 1 to 1,024 GPUs
NEVER = 1 << 40
FALL = 64  # the threshold falls every so many candidates

ALIGNED = np.array([  # bits at multiples of 1, 2, 4 .. 64, and none
    -1, 0x5555555555555555, 0x1111111111111111, 0x0101010101010101, 0x0001000100010001, 0x0000000100000001, 1, 0,
], dtype=np.int64)  # fmt: skip


class Board(NamedTuple):
    """What is taken at each step."""

    words: I64  # [word, step] bits of GPUs taken; the last column is scratch of ``fit``
    room: I64  # [step] GPUs that neither work nor the curves of services have
    lines: I64  # [line, step] OPEN: of room, what no budget's kept part needs; then by budget GPUs in use, then GPUs kept


@njit(cache=True)
def budgets(board: Board) -> int:
    """Return how many budgets there are, the last being that of work without one; 1: nothing is kept, and nobody counts."""
    return (len(board.lines) - 1) // 2


@njit(cache=True)
def put(board: Board, jobs: I64, j: int, start: int, at: int, sign: int) -> None:
    """Take (``sign`` 1) or give back (-1) the GPUs of a job from ``at`` on."""
    gpus, words, room = jobs[j, GPUS], board.words, board.room
    end = min(start + jobs[j, DURATION], len(room))
    bits = np.int64(ALL)
    if gpus < WORD:
        bits = ((np.int64(1) << gpus) - np.int64(1)) << np.int64(at & 63)
    for w in range(at >> 6, (at >> 6) + max(1, gpus >> 6)):
        for t in range(start, end):
            words[w, t] ^= bits
    for t in range(start, end):
        room[t] -= sign * gpus
    count = budgets(board)
    if count > 1:
        use, kept = board.lines[1 + jobs[j, BUDGET]], board.lines[1 + count + jobs[j, BUDGET]]
        for t in range(start, end):
            before = max(use[t], kept[t])
            use[t] += sign * gpus
            board.lines[OPEN, t] -= max(use[t], kept[t]) - before


@njit(cache=True)
def _kept_from(board: Board, gpus: int, budget: int, t: int) -> bool:
    """Tell whether a job would take, above what is kept for its budget, what is kept for others."""
    use, kept = board.lines[1 + budget, t], board.lines[1 + budgets(board) + budget, t]
    more = use + gpus - max(use, kept)
    return more > 0 and board.lines[OPEN, t] < more


@njit(cache=True)
def _surrounding(words: I64, scratch: int, word: int, size: int) -> int:
    """Return the words of the largest aligned run around ``size`` free ones that is free too."""
    first = word
    while True:
        below = first & ~(2 * size - 1)
        if below + 2 * size > len(words):
            return size
        for w in range(below, below + 2 * size):
            if words[w, scratch] != 0:
                return size
        size, first = 2 * size, below


@njit(cache=True)
def _block_starts(taken: int, gpus: int) -> int:
    """Return the bits at which an aligned block of less than a word is free."""
    starts, size, level = ~taken, 1, 0
    while size < gpus:
        starts &= (starts >> size) & ALIGNED[level + 1]
        size, level = 2 * size, level + 1
    return starts


@njit(cache=True)
def fit(words: I64, gpus: int, begin: int, end: int) -> int:
    """Return the first GPU of the tightest free block over the steps, or -1."""
    count, scratch = len(words), words.shape[1] - 1
    for w in range(count):
        bits = words[w, begin]
        for t in range(begin + 1, end):
            bits |= words[w, t]
        words[w, scratch] = bits
    best, least = -1, NEVER
    if gpus >= WORD:
        need = gpus >> 6
        for word in range(0, count - need + 1, need):
            free = True
            for w in range(word, word + need):
                free = free and words[w, scratch] == 0
            if free:
                size = WORD * _surrounding(words, scratch, word, need)
                if size < least:
                    best, least = WORD * word, size
        return best
    base = 0
    while 1 << base < gpus:
        base += 1
    for w in range(count):
        if words[w, scratch] == 0:
            size = WORD * _surrounding(words, scratch, w, 1)
            if size < least:
                best, least = WORD * w, size
            continue
        starts, size, level = _block_starts(words[w, scratch], gpus), gpus, base
        while starts != 0 and size < least:
            wider = starts & (starts >> size) & ALIGNED[level + 1]
            tight = starts & ~(wider | (wider << size))
            if tight != 0:
                at = 0
                while (tight >> at) & 1 == 0:
                    at += gpus
                best, least = WORD * w + at, size
            starts, size, level = wider, 2 * size, level + 1
    return best


@njit(cache=True)
def _blocked(words: I64, gpus: int, begin: int, end: int) -> int:
    """Return the last step from which on no block is free until ``end``; there is none from ``begin`` on."""
    count, scratch, need = len(words), words.shape[1] - 1, max(1, gpus >> 6)
    words[:, scratch] = 0
    for t in range(end - 1, begin - 1, -1):
        free = False
        for word in range(0, count - need + 1, need):
            run = True
            for w in range(word, word + need):
                words[w, scratch] |= words[w, t]
                run = run and words[w, scratch] == 0
            free = free or run or (gpus < WORD and _block_starts(words[word, scratch], gpus) != 0)
        if not free:
            return t
    return begin


@njit(cache=True)
def find(board: Board, jobs: I64, j: int, earliest: int, latest: int, found: I64) -> bool:
    """Fill ``found`` with the earliest start and the first GPU; tells whether there is one."""
    room, gpus, duration, steps = board.room, jobs[j, GPUS], jobs[j, DURATION], len(board.room)
    start, known, many = earliest, earliest, budgets(board) > 1  # from start to before known enough GPUs are left
    while start <= latest:
        end = min(start + duration, steps)
        t = end - 1
        while t >= known and room[t] >= gpus and not (many and _kept_from(board, gpus, jobs[j, BUDGET], t)):
            t -= 1
        if t >= known:
            start, known = t + 1, end
            continue
        known = end
        at = fit(board.words, gpus, start, end)
        if at >= 0:
            found[0], found[1] = start, at
            return True
        start = _blocked(board.words, gpus, start, end) + 1
    return False


@njit(cache=True)
def follow(board: Board, jobs: I64, order: I64, strict: int, start: I64, at: I64) -> None:
    """Place jobs in order from scratch; ``strict`` 1: nobody starts before one in front of him, nor behind one who cannot."""
    found, before = np.zeros(2, dtype=np.int64), 0
    start[:] = -1
    at[:] = -1
    for k in range(len(order)):
        j = order[k]
        if find(board, jobs, j, max(before, jobs[j, EARLIEST]), jobs[j, LATEST], found):
            start[j], at[j] = found[0], found[1]
            put(board, jobs, j, start[j], at[j], 1)
            before = found[0] if strict == 1 else 0
        elif strict == 1:
            return


@njit(cache=True)
def cut(curve: I64, floor: I64, cap: int, begin: int, end: int, level: int, room: I64, opened: I64) -> None:
    """Bring a curve down to ``level`` in a window, and beside it as far as the cap asks; never below its floor."""
    for t in range(len(curve)):
        away = max(0, begin - t, t - end + 1)
        value = max(floor[t], min(curve[t], level + cap * away))
        room[t] += curve[t] - value
        opened[t] += curve[t] - value
        curve[t] = value


@njit(cache=True)
def lift(curve: I64, ceiling: I64, cap: int, begin: int, end: int, level: int, room: I64, opened: I64) -> None:
    """Bring a curve up to ``level`` in a window, and beside it as far as the cap asks; never above its ceiling."""
    for t in range(len(curve)):
        away = max(0, begin - t, t - end + 1)
        value = max(curve[t], min(ceiling[t], level - cap * away))
        room[t] += curve[t] - value
        opened[t] += curve[t] - value
        curve[t] = value


@njit(cache=True)
def _give_way(curves: I64, floors: I64, services: I64, t: int, need: int, room: I64, opened: I64) -> None:
    """Cut the curves at one step until ``need`` GPUs more are left, the cheapest service first; as far as floors allow."""
    for a in range(len(curves) - 1, -1, -1):  # the dearest is the first row
        if need > 0:
            part = min(need, curves[a, t] - floors[a, t])
            if part > 0:
                cut(curves[a], floors[a], services[a, CAP], t, t + 1, curves[a, t] - part, room, opened)
                need -= part


@njit(cache=True)
def _guarded(board: Board, pinned_use: I64, t: int) -> bool:
    """Tell whether a planned job is there that takes its budget above its kept part: what is kept for others must be free then."""
    count = budgets(board)
    if count > 1:
        for b in range(count):
            if board.lines[1 + b, t] > max(board.lines[1 + count + b, t], pinned_use[b, t]):
                return True
    return False


@njit(cache=True)
def settle(board: Board, pinned_use: I64, curves: I64, floors: I64, services: I64) -> None:
    """Cut the curves wherever they are more than there is."""
    for t in range(len(board.room)):
        need = -board.room[t]
        if _guarded(board, pinned_use, t):
            need = max(need, -board.lines[OPEN, t])
        if need > 0:
            _give_way(curves, floors, services, t, need, board.room, board.lines[OPEN])


@njit(cache=True)
def _least_cut(board: Board, jobs: I64, j: int, spare: I64, found: I64) -> bool:
    """Fill ``found`` with the start in time that takes the fewest of the ``spare`` GPU-steps, which the board has as free now."""
    start, at, least = -1, -1, NEVER
    for begin in range(jobs[j, EARLIEST], jobs[j, LATEST] + 1):
        taken = 0
        for t in range(begin, min(begin + jobs[j, DURATION], len(board.room))):
            taken += max(0, jobs[j, GPUS] - (board.room[t] - spare[t]))
        if taken < least and find(board, jobs, j, begin, begin, found):
            start, at, least = found[0], found[1], taken
    found[0], found[1] = start, at
    return start >= 0


@njit(cache=True)
def reserve(
    board: Board, pinned_use: I64, jobs: I64, due: I64, curves: I64, floors: I64, services: I64, start: I64, at: I64, late: I64
) -> int:  # fmt: skip
    """Place the jobs that fall due, in this order, before anybody else; returns how many of them must stay where they are.

    Where a job fits beside the curves it takes its earliest start there. If that is too late, curves give way down to their floors,
    where that takes the fewest GPU-steps of them; if not even that is in time, it is late, and takes the earliest start there is.
    All up to the last of these stay.
    """
    found, stay, steps = np.zeros(2, dtype=np.int64), 0, len(board.room)
    spare = np.zeros(steps, dtype=np.int64)
    for k in range(len(due)):
        j = due[k]
        if not find(board, jobs, j, jobs[j, EARLIEST], jobs[j, LATEST], found):
            stay = k + 1
            for t in range(steps):
                spare[t] = 0
                for a in range(len(curves)):
                    spare[t] += curves[a, t] - floors[a, t]
                board.room[t] += spare[t]
                board.lines[OPEN, t] += spare[t]
            fits = _least_cut(board, jobs, j, spare, found)
            late[j] = 0 if fits else 1
            if not fits:
                fits = find(board, jobs, j, jobs[j, EARLIEST], jobs[j, LAST], found)
            for t in range(steps):
                board.room[t] -= spare[t]
                board.lines[OPEN, t] -= spare[t]
            if not fits:
                continue
        start[j], at[j] = found[0], found[1]
        put(board, jobs, j, start[j], at[j], 1)
        settle(board, pinned_use, curves, floors, services)
    return stay


@njit(cache=True)
def filled(
    board: Board, pinned_use: I64, curves: I64, ceilings: I64, demand: I64, services: I64, spare: I64, result: I64
) -> int:
    """Fill ``result`` with the curves raised into what is left, the dearest service first; returns what unserved demand costs.

    What is kept for a budget is not taken where a planned job of somebody else is beside it.
    """
    steps = len(board.room)
    for t in range(steps):
        spare[t] = board.room[t]
        if _guarded(board, pinned_use, t):
            spare[t] = min(spare[t], board.lines[OPEN, t])
    cost = 0
    for a in range(len(curves)):
        cap, sting, row = services[a, CAP], services[a, STING], result[a]
        for t in range(steps):
            row[t] = min(ceilings[a, t], curves[a, t] + spare[t])
            if t > 0:
                row[t] = min(row[t], row[t - 1] + cap)
        unmet = 0
        for t in range(steps - 1, -1, -1):
            if t < steps - 1:
                row[t] = min(row[t], row[t + 1] + cap)
            spare[t] -= row[t] - curves[a, t]
            unmet += max(0, demand[a, t] - row[t])
        cost += unmet * sting
    return cost


@njit(cache=True)
def _raise_to(board: Board, curves: I64, raised: I64) -> None:
    """Make curves what they were filled up to: what a cut has freed and nobody has taken is a service's again."""
    for a in range(len(curves)):
        for t in range(len(board.room)):
            more = raised[a, t] - curves[a, t]
            board.room[t] -= more
            board.lines[OPEN, t] -= more
    curves[:] = raised


@njit(cache=True)
def _draw(dice: I64, below: int) -> int:
    """Return the next number from 0 to ``below`` - 1."""
    dice[0] = dice[0] * 48_271 % 2_147_483_647
    return (dice[0] * below) >> 31


@njit(cache=True)
def _want(board: Board, jobs: I64, j: int, curves: I64, floors: I64, services: I64, dice: I64) -> None:
    """Cut the curves for a job that is not placed: for the start that takes the least of them, of some drawn by chance."""
    span = jobs[j, LATEST] - jobs[j, EARLIEST] + 1
    if span < 1:
        return
    wanted, least, steps = 0, NEVER, len(board.room)
    for _try in range(TRIES):
        begin, taken = jobs[j, EARLIEST] + _draw(dice, span), 0
        for t in range(begin, min(begin + jobs[j, DURATION], steps)):
            taken += max(0, jobs[j, GPUS] - board.room[t])
        if taken < least:
            wanted, least = begin, taken
    for t in range(wanted, min(wanted + jobs[j, DURATION], steps)):
        lacking = jobs[j, GPUS] - board.room[t]
        if lacking > 0:
            _give_way(curves, floors, services, t, lacking, board.room, board.lines[OPEN])


@njit(cache=True)
def _bend(
    board: Board, curves: I64, floors: I64, ceilings: I64, services: I64, dice: I64
) -> None:
    """Cut or raise one curve in a window drawn by chance."""
    steps = len(board.room)
    a = _draw(dice, len(curves))
    length = 1 + _draw(dice, 1 + _draw(dice, max(1, steps // 3)))
    begin = _draw(dice, steps)
    end = min(steps, begin + length)
    if _draw(dice, 3) == 0:
        lift(curves[a], ceilings[a], services[a, CAP], begin, end, 1 << 30, board.room, board.lines[OPEN])
        return
    level = curves[a, begin]
    for t in range(begin, end):
        level = min(level, curves[a, t])
    level -= 1 + _draw(dice, 1 + _draw(dice, 8))
    cut(curves[a], floors[a], services[a, CAP], begin, end, level, board.room, board.lines[OPEN])


@njit(cache=True)
def _reorder(jobs: I64, order: I64, stay: int, start: I64, dice: I64, span: I64) -> None:
    """Move or swap jobs of the order behind ``stay``; ``span`` gets the first and the last position that changed.

    Who is not planned only moves forward: behind where he is he is not planned either.
    """
    count = len(order) - stay
    i = stay + _draw(dice, count)
    for _try in range(RIVALS):
        other = stay + _draw(dice, count)
        if start[order[i]] < 0 and (start[order[other]] >= 0 or jobs[order[other], PRIORITY] > jobs[order[i], PRIORITY]):
            i = other
    if _draw(dice, 2) == 0 and start[order[i]] >= 0:
        k = min(len(order) - 1, max(stay, i + _draw(dice, 2 * NEAR + 1) - NEAR))
    else:
        k = stay + _draw(dice, count)
    tries = 0
    while start[order[i]] < 0 and start[order[k]] < 0 and tries < TRIES:
        k = stay + _draw(dice, count)
        tries += 1
    if k == i:
        k = i - 1 if i > stay else i + 1
    if k > i and start[order[i]] < 0:
        i, k = k, i
    job = order[i]
    if _draw(dice, 2) == 0:
        order[i], order[k] = order[k], job
    else:
        step = 1 if k > i else -1
        for n in range(i, k, step):
            order[n] = order[n + step]
        order[k] = job
    span[0], span[1] = min(i, k), max(i, k)


@njit(cache=True)
def _between(known: I64, jobs: I64, j: int, level: int, between: I64) -> None:
    """Fill in the first and the last start to look at, as far as jobs placed before it, that ask for no more, tell."""
    first, last = jobs[j, EARLIEST], jobs[j, LATEST]
    for below in range(level + 1):
        if known[below, 0] <= jobs[j, DURATION] and known[below, 1] <= jobs[j, EARLIEST]:
            first = max(first, known[below, 2])
        if known[below, 3] <= jobs[j, DURATION]:
            last = min(last, known[below, 4] - 1)
    between[0], between[1] = first, last


@njit(cache=True)
def _remember(known: I64, jobs: I64, j: int, level: int, start: int) -> None:
    """Keep where a job started (-1: nowhere), if that says more than what is kept."""
    if start >= 0 and (start >= known[level, 2] or known[level, 0] > jobs[j, DURATION]):
        known[level, 0], known[level, 1], known[level, 2] = jobs[j, DURATION], jobs[j, EARLIEST], start
    elif start < 0 and jobs[j, LATEST] == jobs[j, LAST] and (
        jobs[j, DURATION] < known[level, 3] or (jobs[j, DURATION] == known[level, 3] and jobs[j, EARLIEST] < known[level, 4])
    ):
        known[level, 3], known[level, 4] = jobs[j, DURATION], jobs[j, EARLIEST]


@njit(cache=True)
def _place(
    board: Board, jobs: I64, must: NDArray[np.bool_], order: I64, first: int, last: int, start: I64, at: I64, new_start: I64,
    new_at: I64, known: I64, found: I64,
) -> int:  # fmt: skip
    """Place the order from ``first`` on; returns how many are elsewhere than at ``start`` and ``at``, -1 = one who must is nowhere.

    Behind ``last`` the order is as before, so if nobody is elsewhere by then, nobody will be: the others are put where they were.
    What is free only becomes less, so who asks for as much as somebody before him, or more, does not start before him.
    """
    moved, one_for_all, between = 0, budgets(board) == 1, found[2:]
    known[:, :] = NEVER
    known[:, 2] = -1
    for n in range(first, len(order)):
        j = order[n]
        if n > last and moved == 0:
            new_start[j], new_at[j] = start[j], at[j]
            if start[j] >= 0:
                put(board, jobs, j, start[j], at[j], 1)
            continue
        level = 0
        between[0], between[1] = jobs[j, EARLIEST], jobs[j, LATEST]
        if one_for_all:
            while 1 << level < jobs[j, GPUS]:
                level += 1
            _between(known, jobs, j, level, between)
        new_start[j], new_at[j] = -1, -1
        if find(board, jobs, j, between[0], between[1], found):
            new_start[j], new_at[j] = found[0], found[1]
            put(board, jobs, j, found[0], found[1], 1)
        elif must[j]:
            return -1
        if one_for_all:
            _remember(known, jobs, j, level, new_start[j])
        if new_start[j] != start[j] or new_at[j] != at[j]:
            moved += 1
    return moved


@njit(cache=True)
def _copy(board: Board, other: Board) -> None:
    """Make ``other`` what ``board`` is."""
    other.words[:] = board.words
    other.room[:] = board.room
    if budgets(board) > 1:
        other.lines[:] = board.lines


@njit(cache=True)
def _without(board: Board, jobs: I64, order: I64, first: int, start: I64, at: I64) -> None:
    """Take away whoever is placed from a position on."""
    for n in range(first, len(order)):
        j = order[n]
        if start[j] >= 0:
            put(board, jobs, j, start[j], at[j], -1)


@njit(cache=True)
def _change(
    board: Board, jobs: I64, order: I64, stay: int, start: I64, at: I64, curves: I64, floors: I64, ceilings: I64, services: I64,
    bend: int, dice: I64, span: I64,
) -> bool:  # fmt: skip
    """Change the order, or in ``bend`` of 256 cases the curves; ``span`` gets the positions; tells whether curves did."""
    kind = _draw(dice, 256)
    if kind >= bend:
        _reorder(jobs, order, stay, start, dice, span)
        _without(board, jobs, order, span[0], start, at)
        return False
    span[0], span[1] = stay, len(order)
    if kind >= WANTED_MOVES or len(order) == stay:
        _without(board, jobs, order, stay, start, at)
        _bend(board, curves, floors, ceilings, services, dice)
        return True
    k = stay + _draw(dice, len(order) - stay)
    for _try in range(RIVALS):
        other = stay + _draw(dice, len(order) - stay)
        if start[order[k]] >= 0 and start[order[other]] < 0:
            k = other
    job, to = order[k], stay + _draw(dice, k - stay + 1)
    for n in range(k, to, -1):
        order[n] = order[n - 1]
    order[to] = job
    _without(board, jobs, order, to, start, at)
    _want(board, jobs, job, curves, floors, services, dice)
    span[0] = to
    return True


@njit(cache=True)
def search(
    board: Board, old: Board, jobs: I64, worth: I64, must: NDArray[np.bool_], order: I64, stay: int, start: I64, at: I64,
    pinned_use: I64, curves: I64, floors: I64, ceilings: I64, demand: I64, services: I64, joint: int, candidates: int, heat: int,
    dice: I64, best_start: I64, best_at: I64, best_curves: I64,
) -> int:  # fmt: skip
    """Improve the order and, ``joint`` 1, the curves; fills the ``best_`` arrays; returns the value of the best plan.

    The board holds exactly the first ``stay`` of the order, which are never moved, and the curves; ``old`` is scratch of its shape.
    A candidate places again what is behind its first change; one that is not taken is undone by copying.
    """
    count, steps = len(order), len(board.room)
    found, span = np.zeros(4, dtype=np.int64), np.zeros(2, dtype=np.int64)
    spare, raised, known = np.zeros(steps, dtype=np.int64), np.zeros_like(curves), np.zeros((LEVELS, 5), dtype=np.int64)
    new_start, new_at = start.copy(), at.copy()
    old_order, old_curves = order.copy(), curves.copy()
    _copy(board, old)
    value = best = -(1 << 62)
    bend = 0 if joint == 0 or len(curves) == 0 else CURVE_MOVES if count - stay > 1 else 256
    if bend == 0 and count - stay < 2:
        candidates = 0
    for number in range(candidates + 1):
        bent = number == 0
        span[0], span[1] = stay, count
        if number > 0:
            bent = _change(board, jobs, order, stay, start, at, curves, floors, ceilings, services, bend, dice, span)
        first = span[0]
        if bent and number > 0:
            settle(board, pinned_use, curves, floors, services)
        moved = _place(board, jobs, must, order, first, span[1], start, at, new_start, new_at, known, found)
        total = value
        if moved > 0 or (moved == 0 and bent):
            total = -filled(board, pinned_use, curves, ceilings, demand, services, spare, raised)
            for j in range(count):
                if new_start[j] >= 0:
                    total += worth[j, new_start[j]]
        threshold = heat // max(1, candidates) * (candidates - number // FALL * FALL)
        if moved >= 0 and total > value - 1 - _draw(dice, 1_024) * threshold // 1_024:
            value = total
            if moved > 0 or bent:
                _raise_to(board, curves, raised)
            old_order[first:], old_curves[:], start[:], at[:] = order[first:], curves, new_start, new_at
            _copy(board, old)
            if value > best:
                best = value
                best_start[:], best_at[:], best_curves[:] = start, at, raised
        else:
            order[first:], curves[:], new_start[:], new_at[:] = old_order[first:], old_curves, start, at
            _copy(old, board)
    return best
