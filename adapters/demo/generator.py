"""A week of jobs with the published shape of the ITP trace, for a demo without a file.

Decides sizes, instants, durations and programs of made-up jobs; a pure function of its arguments, integers only. The
tables below are facts measured over all 69,351 jobs and 60 days of the trace (see ``trace``):

- ``SIZES``: jobs per number of GPUs asked;
- ``HOURS``: jobs by hour of the week, counted from the trace's second 0 (a Thursday);
- ``DURATIONS_S``: per size, the duration in seconds at the thousandths ``MARKS`` of the jobs sorted by duration (the
  job at ``mark * (jobs - 1) // 1000``); between two marks a duration is drawn evenly. This overstates the trace's
  GPU time by 0.6 %, which the number of jobs makes good;
- ``PROGRAMS``: per size, for five bands of the jobs sorted by duration (cut at ``BANDS`` thousandths), how many jobs
  each of the ten programs has. So a program keeps both its number of jobs and, nearly, its GPU time.

Draws are stratified: a class has exactly its share of jobs, each takes its own slice of the duration scale, an hour has
exactly its share of arrivals. So each seed gives another week, and each week the published demand.
"""

from __future__ import annotations

from typing import NamedTuple

from apportion.adapters.simulation.dice import Dice
from apportion.adapters.simulation.job import Job
from apportion.core.units import apportion

HOURS_PER_WEEK = 168
MS_PER_HOUR = 3_600_000
PROGRAM_NAMES = tuple(f"cluster{number:02d}" for number in range(1, 11))

# fmt: off
SIZES = {1: 57682, 2: 1483, 4: 2371, 8: 7009, 16: 381, 32: 354, 64: 71}
HOURS = (
    507, 505, 797, 686, 422, 365, 491, 378, 376, 517, 523, 299, 220, 685, 401, 563, 485, 455, 492, 600, 462, 616, 746,
    637, 398, 542, 466, 617, 537, 685, 255, 282, 412, 281, 222, 185, 227, 308, 246, 111, 88, 141, 183, 204, 249, 251,
    385, 370, 303, 369, 312, 365, 864, 391, 296, 324, 228, 190, 312, 327, 395, 475, 354, 325, 285, 281, 509, 652, 367,
    571, 622, 639, 534, 652, 600, 588, 721, 313, 303, 392, 287, 166, 190, 224, 59, 144, 318, 198, 297, 365, 345, 611,
    385, 477, 269, 288, 337, 505, 766, 427, 489, 217, 212, 325, 115, 389, 286, 559, 654, 333, 79, 231, 320, 593, 402,
    345, 499, 443, 480, 531, 540, 470, 536, 557, 732, 608, 271, 405, 568, 473, 527, 487, 369, 299, 384, 287, 448, 370,
    325, 388, 369, 608, 397, 439, 581, 295, 450, 412, 381, 548, 656, 634, 588, 630, 460, 423, 262, 351, 468, 329, 302,
    207, 299, 362, 284, 503, 651, 526,
)
MARKS = (0, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800, 850, 900,
         925, 950, 965, 980, 990, 995, 998, 999, 1000)
DURATIONS_S = {
    1: (600, 987, 1288, 1803, 2526, 3909, 5518, 7079, 7558, 8004, 10131, 10976, 11717, 11872, 13572, 14367, 16399,
        18941, 25322, 26246, 28837, 40522, 56768, 84609, 114936, 228440, 409149, 1573360),
    2: (601, 744, 844, 1730, 2250, 2587, 2840, 3039, 3220, 3446, 3478, 3544, 3732, 3788, 3900, 3966, 4205, 7720,
        18613, 28896, 53821, 64962, 90794, 446174, 578668, 788685, 789960, 899735),
    4: (601, 822, 1338, 2409, 2906, 3603, 4208, 5269, 6120, 7103, 8325, 9012, 10013, 15186, 23595, 31204, 48452,
        70224, 118046, 150289, 222406, 264792, 419826, 669586, 782886, 985508, 1028064, 1114383),
    8: (600, 1084, 1972, 3229, 5034, 7216, 9637, 11794, 13723, 15126, 18320, 22055, 27457, 32422, 40471, 49419, 65800,
        88675, 130073, 159807, 207437, 271735, 352754, 505358, 660590, 940505, 980208, 1237189),
    16: (604, 683, 928, 1298, 2030, 3225, 3342, 4057, 6322, 17705, 31780, 41263, 48711, 58827, 64724, 74582, 90419,
        124727, 180777, 250135, 311900, 332636, 400001, 442633, 597733, 598264, 598264, 602150),
    32: (602, 1437, 1862, 2465, 4328, 5336, 11959, 24964, 39973, 58745, 72754, 83283, 86160, 102043, 112050, 118531,
        139443, 150785, 196284, 224390, 279899, 298626, 411818, 540448, 662667, 671371, 671371, 1022894),
    64: (623, 1097, 2326, 2518, 3806, 4335, 8865, 14666, 15801, 22012, 31372, 34381, 35735, 38062, 41169, 60710,
        82276, 161182, 263856, 264133, 317340, 344561, 524869, 544612, 544612, 544612, 544612, 548801),
}
BANDS = (0, 250, 500, 750, 900, 1000)
PROGRAMS = {
    1: ((151, 1732, 229, 2322, 811, 871, 2869, 3927, 1432, 76), (718, 1299, 396, 5324, 1304, 69, 4284, 311, 700, 16),
        (219, 385, 90, 1972, 622, 36, 1166, 3531, 6378, 21), (308, 653, 160, 1868, 593, 21, 613, 2698, 1727, 11),
        (134, 868, 139, 438, 135, 76, 922, 2091, 897, 69)),
    2: ((0, 18, 3, 108, 42, 1, 38, 160, 0, 0), (0, 5, 80, 0, 0, 0, 255, 31, 0, 0), (0, 0, 0, 0, 0, 1, 370, 0, 0, 0),
        (0, 48, 1, 10, 4, 2, 128, 23, 0, 6), (11, 31, 1, 7, 4, 2, 45, 3, 0, 45)),
    4: ((0, 40, 0, 126, 18, 13, 254, 138, 0, 3), (0, 29, 0, 226, 15, 50, 263, 9, 0, 1), (1, 129, 0, 148, 3, 30, 235,
        46, 0, 1), (2, 63, 0, 28, 0, 48, 187, 22, 0, 5), (3, 40, 0, 4, 1, 7, 132, 47, 0, 4)),
    8: ((1, 196, 694, 444, 16, 297, 104, 0, 0, 0), (3, 50, 503, 924, 7, 212, 53, 0, 0, 0), (1, 65, 313, 823, 50, 370,
        130, 0, 0, 0), (0, 18, 210, 367, 4, 134, 318, 1, 0, 0), (0, 23, 57, 221, 0, 69, 331, 0, 0, 0)),
    16: ((1, 3, 19, 54, 0, 14, 2, 0, 0, 2), (2, 8, 29, 12, 0, 44, 0, 0, 0, 0), (1, 14, 35, 44, 0, 1, 0, 0, 0, 0), (2,
        9, 6, 40, 0, 0, 0, 0, 0, 0), (0, 2, 5, 32, 0, 0, 0, 0, 0, 0)),
    32: ((1, 17, 6, 42, 0, 18, 0, 4, 0, 0), (10, 14, 6, 52, 0, 2, 0, 5, 0, 0), (0, 2, 6, 80, 0, 0, 0, 0, 0, 0), (0, 1,
        3, 49, 0, 0, 0, 0, 0, 0), (0, 2, 3, 31, 0, 0, 0, 0, 0, 0)),
    64: ((6, 3, 4, 0, 0, 4, 0, 0, 0, 0), (6, 5, 7, 0, 0, 0, 0, 0, 0, 0), (13, 2, 2, 1, 0, 0, 0, 0, 0, 0), (1, 3, 4, 1,
        0, 1, 0, 0, 0, 0), (0, 1, 0, 4, 0, 3, 0, 0, 0, 0)),
}
# fmt: on


class Shape(NamedTuple):
    """What to generate. ``demand_milli``: GPU time asked per GPU time there is, in thousandths (2,200 is 2.2 times)."""

    days: int = 7
    gpus: int = 512
    demand_milli: int = 2_200
    largest: int = 64  # larger jobs are left out, for clusters that could not hold them


def generate(seed: int, shape: Shape | None = None) -> list[Job]:
    """Return the jobs of ``shape.days`` days ordered by instant; equal arguments give equal jobs, on every machine."""
    shape = shape or Shape()
    if shape.days < 1 or shape.gpus < 1 or shape.demand_milli < 1 or shape.largest < 1:
        raise ValueError(f"{shape}: days, gpus, demand_milli and largest must be at least 1")
    dice = Dice(seed, "generator")
    sizes = [size for size in SIZES if size <= shape.largest]
    counts = [SIZES[size] for size in sizes]
    mean_gpu_s = sum(SIZES[size] * size * mean_duration_s(size) for size in sizes) // sum(counts)
    wanted_gpu_s = shape.gpus * shape.days * 24 * 3_600 * shape.demand_milli // 1_000
    total = max(1, wanted_gpu_s // mean_gpu_s)
    instants = _instants(dice, total, shape.days)
    jobs: list[tuple[int, int, int, str]] = []
    for size, count in zip(sizes, apportion(total, counts), strict=True):
        for duration_ms, program in _class(dice, size, count):
            jobs.append((instants.pop(), duration_ms, size, program))
    jobs.sort()
    return [
        Job(f"{program}-{number:05d}", submit_ms, duration_ms, gpus, program)
        for number, (submit_ms, duration_ms, gpus, program) in enumerate(jobs, 1)
    ]


def mean_duration_s(size: int) -> int:
    """Return the mean of the durations ``generate`` draws for ``size`` GPUs, in seconds (rounded down)."""
    marks = DURATIONS_S[size]
    twice = sum((marks[at] + marks[at + 1]) * (MARKS[at + 1] - MARKS[at]) for at in range(len(MARKS) - 1))
    return twice // (2 * MARKS[-1])


def _instants(dice: Dice, total: int, days: int) -> list[int]:
    """Return ``total`` instants in random order, each hour with its share."""
    hours = [HOURS[hour % HOURS_PER_WEEK] for hour in range(days * 24)]
    instants = [
        hour * MS_PER_HOUR + dice.below(3_600) * 1_000 + dice.below(1_000)
        for hour, count in enumerate(apportion(total, hours))
        for _ in range(count)
    ]
    dice.shuffle(instants)
    return instants


def _class(dice: Dice, size: int, count: int) -> list[tuple[int, str]]:
    """Return (duration in ms, program) of ``count`` jobs of one size."""
    ranks = [(position * 1_000_000 + dice.below(1_000_000)) // count for position in range(count)]  # of a million
    found: list[tuple[int, str]] = []
    for band in range(len(BANDS) - 1):
        inside = [rank for rank in ranks if BANDS[band] * 1_000 <= rank < BANDS[band + 1] * 1_000]
        names: list[str] = []
        for name, share in zip(PROGRAM_NAMES, apportion(len(inside), PROGRAMS[size][band]), strict=True):
            names.extend([name] * share)
        dice.shuffle(names)
        found.extend((_duration_ms(size, rank), name) for rank, name in zip(inside, names, strict=True))
    return found


def _duration_ms(size: int, rank: int) -> int:
    """Return the duration at ``rank`` millionths of the class, between the marks around it."""
    at = max(position for position in range(len(MARKS) - 1) if MARKS[position] * 1_000 <= rank)
    low, high = DURATIONS_S[size][at], DURATIONS_S[size][at + 1]
    span = (MARKS[at + 1] - MARKS[at]) * 1_000
    return low * 1_000 + (high - low) * 1_000 * (rank - MARKS[at] * 1_000) // span
