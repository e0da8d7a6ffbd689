"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, -1 for what is not known.

Decides what the numbers mean here. A pure function of the lines. The format is defined at cs.huji.ac.il/labs/parallel/workload
(Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999, LNCS 1659).

- Instants are seconds after the header's ``UnixStartTime``; start = submit + wait, end = start + run. A run of -1 never ran, and
  left the queue after its wait.
  A wait of -1 with a run counts as none, and is noted.
- What is held is the processors allocated, else those requested (noted). The format knows no GPUs; on request a processor
  counts as one, for logs whose slots play GPUs.
- Status 2, 3 and 4 are parts of a job that was checkpointed; its whole is the line with status 0, 1 or 5, so parts are passed.
- Names of queues are those of the header. Users, groups and executables have only numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation

from apportion.adapters.imports.attempt import Attempt, Note, Passed, Read, Unread, checked
from apportion.adapters.imports.lines import Line, read_each

COLUMNS = 18
STATES = {0: "FAILED", 1: "COMPLETED", 5: "CANCELLED", -1: "UNKNOWN"}
PARTS = (2, 3, 4)
_DIRECTIVE = re.compile(r"^;\s*([A-Za-z]+)\s*:\s*(.*?)\s*$")
_QUEUE = re.compile(r"^(\d+)\s+(\S+)")


class Header:
    """The directives of a log: the last value of each name, and the names of queues."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.queues: dict[int, str] = {}

    def take(self, text: str) -> None:
        """Take one comment line."""
        found = _DIRECTIVE.match(text)
        if found is None:
            return
        name, value = found[1].lower(), found[2]
        if name == "queue" and (queue := _QUEUE.match(value)):
            self.queues[int(queue[1])] = queue[2]
        self.values.setdefault(name, value)

    def number(self, name: str) -> int | None:
        """Return a directive that is a whole number, None when it is not there or none."""
        text = self.values.get(name.lower(), "")
        digits = text.removeprefix("-")
        return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 16 else None

    @property
    def zone(self) -> str:
        """The zone it states: by name, else as an offset; "" without one."""
        if name := self.values.get("timezonestring", ""):
            return name
        offset_s = self.number("TimeZone")
        if offset_s is None or abs(offset_s) >= 86_400:
            return ""
        return f"{'-' if offset_s < 0 else '+'}{abs(offset_s) // 3600:02d}:{abs(offset_s) % 3600 // 60:02d}"


def header_of(lines: Iterable[Line]) -> Header:
    """Return the header: the comments before the first job."""
    header = Header()
    for line in lines:
        if line.text.strip() and not line.text.lstrip().startswith(";"):
            break
        header.take(line.text.strip())
    return header


def read(lines: Iterable[Line], header: Header, cluster: str, note: Note, as_gpus: bool = False) -> Iterator[Read]:
    """Yield what each line is; ``as_gpus``: a processor of the log counts as a GPU."""
    zero_s = header.number("UnixStartTime") or 0

    def understood(line: Line) -> Read:
        text = line.text.strip()
        if text.startswith(";"):
            return Passed(line.number, "comment")
        return _job(text.split(), line.number, zero_s, header, cluster, note, as_gpus)

    return read_each(lines, understood)


def _job(
    fields: list[str], number: int, zero_s: int, header: Header, cluster: str, note: Note, as_gpus: bool
) -> Attempt | Passed:
    if len(fields) != COLUMNS:
        raise Unread(f"it has {len(fields)} numbers, the format has {COLUMNS}")
    job, submit_s, wait_s, run_s, held, wanted = (_whole(fields, at) for at in (0, 1, 2, 3, 4, 7))
    status, user, group, program, queue = (_whole(fields, at) for at in (10, 11, 12, 13, 14))
    if status in PARTS:
        return Passed(number, "part of a checkpointed job")
    if job < 0 or submit_s < 0:
        raise Unread(f"its number is {job} and it is submitted at {submit_s}; both must be known")
    start_ms = end_ms = None
    submit_ms = (zero_s + submit_s) * 1_000
    if run_s >= 0:
        if wait_s < 0:
            note("wait is unknown: started when submitted")
        start_ms = submit_ms + max(wait_s, 0) * 1_000
        end_ms = start_ms + run_s * 1_000
    else:
        end_ms = submit_ms + max(wait_s, 0) * 1_000
    if held < 0 <= wanted and run_s > 0:
        note("processors allocated are unknown: those requested count")
    processors = max(held if held >= 0 else wanted, 0)
    queue_name = header.queues.get(queue, str(queue) if queue >= 0 else "")
    return checked(
        Attempt(
            cluster, str(job), submit_ms, start_ms, end_ms,
            label=str(job), name=_name(program), user=_name(user), group=_name(group), queue=queue_name,
            state=STATES.get(status, f"STATUS {status}"), cpus=processors, gpus_milli=processors * 1_000 if as_gpus else 0,
            line=number,
        )
    )  # fmt: skip


def _name(number: int) -> str:
    return str(number) if number >= 0 else ""


def _whole(fields: list[str], at: int) -> int:
    """Return field ``at`` as a whole number; a fraction of a second is cut."""
    text = fields[at]
    try:
        value = int(text)  # the usual case, and fast
    except ValueError:
        try:
            value = int(Decimal(text))
        except (InvalidOperation, ValueError, OverflowError):
            raise Unread(f"field {at + 1} is {text[:40]!r}, not a number") from None
    if abs(value) > 1 << 42:
        raise Unread(f"field {at + 1} is {text[:40]!r}, larger than anything the format counts")
    return value
