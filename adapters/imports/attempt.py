"""What a reader makes of one line: an attempt, a refusal with its reason, or something passed over on purpose.

Pure data. Unknown instants are None; unknown amounts are 0, for nobody can be charged for them, and the reader says how often
it had to do that. Nothing here decides or reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from apportion.core.units import MAX_TIME_MS

MAX_COUNT = 1 << 31  # of nodes, CPUs, milli-GPUs: above it a number is no number of machines


class Attempt(NamedTuple):
    """One attempt of one job as another scheduler recorded it. No start: it never ran. No end: it ran when this was written."""

    cluster: str
    job: str  # the scheduler's number; used again after a restart of some, so it is no key by itself
    submit_ms: int
    start_ms: int | None
    end_ms: int | None
    eligible_ms: int | None = None
    elapsed_ms: int | None = None  # as stated; less than end - start when the job was suspended
    label: str = ""  # the number as its user knows it, such as 31244_7 of an array
    name: str = ""
    user: str = ""
    account: str = ""  # who pays: account, project or PI
    group: str = ""
    qos: str = ""
    queue: str = ""
    state: str = ""
    exit: str = ""
    nodes: int = 0
    cpus: int = 0
    gpus_milli: int = 0
    gpu_type: str = ""
    node_list: str = ""
    line: int = 0


class Refusal(NamedTuple):
    """A line that could not be read as an attempt, and why, with the value."""

    line: int
    reason: str


class Passed(NamedTuple):
    """A line that is no attempt and need not be one: ``why`` is one of a few words, such as ``step`` or ``comment``."""

    line: int
    why: str


Read = Attempt | Refusal | Passed
Note = Callable[[str], None]  # counts something the reader had to assume


class Unread(Exception):
    """A value that is not what its column must hold; the message names the value and the column."""


class BadFile(Exception):
    """A file as a whole that is not of the format asked for; the message says what it is and what to do."""


def count(text: str, what: str) -> int:
    """Return a number of things; raises ``Unread`` for what is none."""
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > MAX_COUNT:
        raise Unread(f"{what} is {text[:40]!r}, not a whole number of at most {MAX_COUNT:,}")
    return int(text)


def checked(attempt: Attempt) -> Attempt:
    """Return the attempt when it can be true; raises ``Unread`` with the instants that cannot."""
    for what, at_ms in (
        ("submit", attempt.submit_ms), ("start", attempt.start_ms), ("end", attempt.end_ms), ("eligible", attempt.eligible_ms)
    ):  # fmt: skip
        if at_ms is not None and not 0 <= at_ms <= MAX_TIME_MS:
            raise Unread(f"{what} is {at_ms} ms after 1970, outside 1970 to 2109")
    if attempt.start_ms is not None and attempt.end_ms is not None and attempt.end_ms < attempt.start_ms:
        raise Unread(f"it ends at {attempt.end_ms} ms, before it starts at {attempt.start_ms} ms")
    if not attempt.job:
        raise Unread("it has no job number")
    for what, number in (("nodes", attempt.nodes), ("cpus", attempt.cpus), ("gpus_milli", attempt.gpus_milli)):
        if not 0 <= number <= MAX_COUNT:
            raise Unread(f"{what} is {number}, not 0 to {MAX_COUNT:,}")
    return attempt
