"""Slurm's accounting, as ``sacct -P`` dumps it: one row per attempt, or per step of one.

Decides which row is an attempt, when it ran and what it held. A pure function of the lines, the zone and the column order.

- A row of a step (``12.batch``, ``12.extern``, ``12.0``) is passed: its job's own row holds the allocation.
- ``None assigned`` in the list of nodes, or no start, means it never ran, whatever its other times say (Slurm writes the end
  of a cancelled job as its start too).
- Without ``AllocTRES`` nobody knows the GPUs: they count as 0, and the answer says so.
- The wall time is end - start. ``Elapsed`` leaves out time suspended, in which the nodes were held all the same.
- A dump without heading is one of ``ORDERS``, recognised by its number of columns, or has the order given.
- ``SubmitLine``, ``JobName`` and comments may hold the separator: a row with too many fields is read with the surplus in one
  of these columns, the first for which every number and time of the row can be one. If none fits the row is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from apportion.adapters.imports import tres
from apportion.adapters.imports.attempt import Attempt, BadFile, Note, Passed, Read, Unread, checked, count
from apportion.adapters.imports.instants import Zone, duration_ms
from apportion.adapters.imports.lines import Line, read_each

SEPARATOR = "|"
# Column orders of dumps that carry no heading, by how many columns they have.
ORDERS = {
    # Open XDMoD's: `sacct --allusers --parsable2 --noheader --allocations --duplicates --format ...`
    26: (
        "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit", "eligible",
        "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres",
        "timelimit", "nodelist", "jobname",
    ),
}  # fmt: skip
NEEDED = ("submit", "start", "end")
FREE = (
    "submitline",
    "jobname",
    "comment",
    "admincomment",
    "systemcomment",
    "workdir",
    "reservation",
    "extra",
    "reason",
)
NEVER_RAN = "none assigned"


def read(
    lines: Iterable[Line], zone: Zone, cluster: str, note: Note, order: Sequence[str] = (), separator: str = SEPARATOR
) -> Iterator[Read]:
    """Yield what each line is. Raises ``BadFile`` when the columns are not those of an accounting dump."""
    columns = tuple(name.strip().lower() for name in order)
    row_of: Callable[[list[str], int], Attempt | Passed] | None = None

    def understood(line: Line) -> Read:
        nonlocal columns, row_of
        if names := _heading(line.text, separator):
            columns, row_of = names, None
            return Passed(line.number, "heading")
        fields = line.text.split(separator)
        if row_of is None:
            columns = columns or _known(fields, line.number)
            row_of = Rows(columns, zone, cluster, note).row
        return row_of(fields, line.number)

    return read_each(lines, understood)


def _heading(text: str, separator: str) -> tuple[str, ...]:
    """Return the columns when the line is a heading, else nothing; dumps that were put together have several."""
    if "jobid" not in text.lower():
        return ()
    names = tuple(name.strip().lower().partition("%")[0] for name in text.split(separator))
    if not {"jobid", "jobidraw"} & set(names):
        return ()
    return names[:-1] if names[-1] == "" else names


def _known(fields: list[str], number: int) -> tuple[str, ...]:
    for count_, names in ORDERS.items():
        if len(fields) == count_ or (len(fields) == count_ + 1 and not fields[-1]):
            return names
    raise BadFile(
        f"line {number} has {len(fields)} columns and there is no heading; dump with `sacct -P` (without --noheader), "
        "or name the columns: --columns JobIDRaw,Cluster,User,..."
    )


class Rows:
    """Reads rows of one column order."""

    def __init__(self, columns: Sequence[str], zone: Zone, cluster: str, note: Note) -> None:
        """``cluster`` is for dumps that do not name one. Raises ``BadFile`` when a needed column is missing."""
        missing = [name for name in NEEDED if name not in columns]
        if missing or not {"jobid", "jobidraw"} & set(columns):
            wanted = ", ".join(missing or ["jobidraw"])
            raise BadFile(
                f"the dump has no column {wanted}; there are {', '.join(columns)[:300]}. Dump it again with --format="
                "JobIDRaw,JobID,Cluster,User,Account,Group,Partition,QOS,State,Submit,Eligible,Start,End,NNodes,NCPUS,AllocTRES,"
                "NodeList,ExitCode,JobName"
            )
        self._columns = tuple(columns)
        self._zone, self._cluster, self._note = zone, cluster, note
        self._at = {name: position for position, name in enumerate(columns)}
        self._free = [self._at[name] for name in FREE if name in self._at]
        self._no_tres = "alloctres" not in self._at

    def row(self, fields: list[str], number: int) -> Attempt | Passed:
        """Return what one row is; raises ``Unread``."""
        wanted = len(self._columns)
        if len(fields) == wanted + 1 and not fields[-1]:  # `sacct -p` ends each row with the separator
            fields.pop()
        if len(fields) == wanted:
            return self._attempt(fields, number)
        if len(fields) < wanted:
            raise Unread(
                f"it has {len(fields)} fields, the columns are {wanted}: it breaks off, or a name holds a line end"
            )
        surplus = len(fields) - wanted
        for at in self._free:
            joined = [*fields[:at], SEPARATOR.join(fields[at : at + surplus + 1]), *fields[at + surplus + 1 :]]
            try:
                found = self._attempt(joined, number)
            except Unread:
                continue
            self._note("separator inside a name or command")
            return found
        raise Unread(f"it has {len(fields)} fields, the columns are {wanted}, and the surplus fits no text column")

    def _get(self, fields: list[str], *names: str) -> str:
        """Return the first of these columns that is there and not empty."""
        for name in names:
            at = self._at.get(name)
            if at is not None and fields[at]:
                return fields[at]
        return ""

    def _attempt(self, fields: list[str], number: int) -> Attempt | Passed:
        label = self._get(fields, "jobid", "jobidraw")
        job = self._get(fields, "jobidraw", "jobid")
        if "." in job or "." in label:
            return Passed(number, "step")
        if not job[:1].isdigit():
            raise Unread(f"the job number is {job[:40]!r}, which does not begin with a digit")
        ms = self._zone.ms
        submit_ms = ms(fields[self._at["submit"]], "Submit")
        start_ms, end_ms = ms(fields[self._at["start"]], "Start"), ms(fields[self._at["end"]], "End")
        eligible_ms = ms(self._get(fields, "eligible"), "Eligible")
        if submit_ms is None:
            raise Unread("Submit is unknown, and the attempt cannot be told from others of this number without it")
        node_list = self._get(fields, "nodelist")
        if node_list.strip().lower() == NEVER_RAN:
            node_list, start_ms = "", None
        held = tres.parse(self._get(fields, "alloctres"))
        nodes = self._number(fields, "NNodes", held.nodes, "nnodes", "allocnodes")
        cpus = self._number(fields, "NCPUS", held.cpus, "ncpus", "alloccpus")
        if self._no_tres and start_ms is not None:
            self._note("no column AllocTRES: GPUs are unknown and count as 0")
        if start_ms is not None and end_ms is None:
            self._note("running when it was dumped")
        return checked(
            Attempt(
                self._get(fields, "cluster") or self._cluster, job, submit_ms, start_ms, end_ms, eligible_ms,
                duration_ms(self._get(fields, "elapsedraw", "elapsed"), "Elapsed"),
                label, self._get(fields, "jobname"), self._get(fields, "user", "uid"), self._get(fields, "account"),
                self._get(fields, "group", "gid"), self._get(fields, "qos"), self._get(fields, "partition"),
                state_of(self._get(fields, "state")), self._get(fields, "exitcode"), nodes, cpus, held.gpus * 1_000,
                held.gpu_type, node_list, number,
            )
        )  # fmt: skip

    def _number(self, fields: list[str], what: str, otherwise: int | None, *names: str) -> int:
        text = self._get(fields, *names)
        return count(text, what) if text else otherwise or 0


def state_of(text: str) -> str:
    """Return the state in one word: ``CANCELLED by 0`` and the shortened ``CANCELLED+`` are CANCELLED."""
    return text.split(" ", 1)[0].rstrip("+").upper()
