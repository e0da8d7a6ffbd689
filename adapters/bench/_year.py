"""A year of a 1,024-GPU cluster as a projection: one simulated day, decided by the real core, laid end to end.

The day is played through the core and projected as any log is; it begins and ends with an empty cluster, every node in service. Its
rows are then repeated in SQL, each time a day later: sequences, cycles, ids and instants go on, names of workloads carry the day.
So what the audit checks of a day holds for the year: it must, or the measurement fails. Heartbeats are their five-minute rows.

What is not so: money and fair shares begin each day as they began the first, and what the texts of decisions say of instants and
sequences is that of the first day, except where a question or a check reads it (deadlines, graces).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb

from apportion.adapters.demo.generator import Shape, generate
from apportion.adapters.simulation.cluster import Layout
from apportion.adapters.simulation.driver import CYCLE_MS, Logs, Simulation
from apportion.adapters.simulation.job import Job
from apportion.adapters.simulation.trouble import MS_PER_DAY, MS_PER_HOUR
from apportion.adapters.simulation.world import World, WorldOptions
from apportion.core.errors import ApportionError
from apportion.projections.runner import Projection

MARK = "D000x"  # in the ids of the first day's workloads
_TEXTS = ("workload", "entity", "body", "name", "of", "target")
_TIMES = frozenset(
    ("time_ms", "stored_ms", "claimed_ms", "admitted_ms", "from_ms", "to_ms", "until_ms", "placed_ms", "started_ms", "stop_ms",
     "end_ms", "protected_until_ms", "payer_since_ms", "start_ms", "deadline_ms", "first_ms", "bucket_ms", "last_ms")
)  # fmt: skip
_IDS = ("alloc_id", "run_id", "state_id", "drain_id")
_DATED = "('run.preempted', 'run.cancelled', 'run.drained', 'run.moved', 'run.retired', 'run.idle')"
_LATER = ("grace_until_ms", "deadline_ms", "since_ms")  # of decisions' bodies
_KEPT = ("meta.projection", "meta.refresh", "meta.journal", "meta.commit_log")

Tell = Callable[[str], None]


class YearRefused(ApportionError):
    """The day cannot be laid end to end."""


class Day(NamedTuple):
    """What one repetition adds."""

    first_seq: int  # the last sequence that is not repeated
    seqs: int
    decisions: int
    cycles: int
    jobs: int


def play_day(seed: int, nodes: int, demand_milli: int) -> tuple[Logs, int]:
    """Return both logs of a day that ends empty, and how many jobs it had."""
    shape = Shape(days=1, gpus=nodes * 8, demand_milli=demand_milli, largest=64)
    # jobs come in twenty hours; two hours later whoever is left gives up, so that the day is over when it ends
    made = generate(seed, shape)
    jobs = [
        Job(f"{MARK}{number:05d}", 5 * CYCLE_MS + job.submit_ms * 20 // 24, job.duration_ms, job.gpus, job.program)
        for number, job in enumerate(made, 1)
    ]
    options = WorldOptions(seed=seed, length_ms=12 * MS_PER_HOUR, layout=Layout(nodes=nodes, grants=()))
    world = World(jobs, options)
    simulation = Simulation(world)
    simulation.run(options.start_ms + 22 * MS_PER_HOUR)
    for fate in list(world.open.values()):
        world.plan(world.now_ms + 1, "cancel", fate)
    end_ms = options.start_ms + CYCLE_MS + MS_PER_DAY
    simulation.run(end_ms - CYCLE_MS)
    simulation.every_interval = True
    return simulation.run(end_ms), len(jobs)


def build(path: Path, *, days: int, seed: int, nodes: int, demand_milli: int, tell: Tell) -> Day:
    """Make the projection of ``days`` days at ``path``. Raises ``YearRefused`` when the day does not end as it began."""
    tell(f"playing a day of {nodes * 8:,} GPUs")
    logs, jobs = play_day(seed, nodes, demand_milli)
    with Projection(path) as projection:
        projection.ingest(logs.records, logs.batches)
        projection.refresh()
        con = projection.con
        _check_ends(con)
        cycles = con.execute("select seq, decision_seq, cycle from fact.cycle order by seq").fetchall()
        first, last = cycles[0], cycles[-1]
        day = Day(first[0], last[0] - first[0], last[1] - first[1], last[2] - first[2], jobs)
        con.execute("set preserve_insertion_order = true")
        for number, table in enumerate(_tables(con), 1):
            tell(f"laying {days} days end to end: table {number}, {table}")
            _repeat(con, table, day, days)
        _commits(con, day, days)
        _close_books(con, day, days)
        con.execute("checkpoint")
    return day


def _check_ends(con: duckdb.DuckDBPyConnection) -> None:
    """Refuse a day after which something is still open, or whose first minute is not like its last."""
    for table in ("fact.alloc_open", "fact.run_open", "fact.workload_state_open", "fact.gpu_state_open", "fact.drain_open"):
        left = con.execute(f"select count(*) from {table}").fetchone()
        if left != (0,):
            raise YearRefused(f"the simulated day ends with {left and left[0]} rows in {table}; take another seed")
    beats = con.execute(
        "select (select heartbeats from fact.cycle order by seq limit 1), (select sum(samples) from fact.heartbeat_5m_open)"
    ).fetchone()
    if beats is None or beats[0] != beats[1]:
        raise YearRefused(f"the first minute of the day has other heartbeats than its last: {beats}; take another seed")


def _tables(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the tables with rows to repeat; those of open rows are brought to the end alone."""
    found = con.execute(
        "select schema_name || '.' || table_name from duckdb_tables() where not internal and estimated_size > 0 order by all"
    ).fetchall()
    return [name for (name,) in found if name not in _KEPT]


def _repeat(con: duckdb.DuckDBPyConnection, table: str, day: Day, days: int) -> None:
    """Repeat a table's rows of the day; what was set up before it stays as it is."""
    described = con.execute(f"describe {table}").fetchall()
    columns = {name: kind for name, kind, *_ in described}
    shifted = ", ".join(f"{_later(table, name, kind, day)} as {name}" for name, kind in columns.items())
    if table.endswith("_open"):
        con.execute(f"create temp table moved as select {shifted} from {table}, (select {days - 1}::bigint as k)")
        con.execute(f"delete from {table}")
        con.execute(f"insert into {table} select * from moved")
        con.execute("drop table moved")
        return
    order = next(name for name in ("close_seq", "closed_seq", "to_seq", "last_seq", "seq") if name in columns)
    con.execute(f"create temp table once as select * from {table} where {order} > {day.first_seq} order by rowid")
    for name in _IDS:
        if name in columns:
            con.execute(f"set variable ids = (select coalesce(max({name}), 0) from {table})")
    con.execute("begin")
    for number in range(1, days):
        con.execute(f"insert into {table} select {shifted} from once, (select {number}::bigint as k)")
    con.execute("commit")
    con.execute("drop table once")


def _later(table: str, name: str, kind: str, day: Day) -> str:
    """Return the expression for a column ``k`` days later."""
    if name == "decision_seq":
        return f"{name} + k * {day.decisions}"
    if name == "cycle":
        return f"{name} + k * {day.cycles}"
    if name in _IDS:
        return f"{name} + k * getvariable('ids')"
    if name == "seq" or name.endswith("_seq"):
        return f"case when {name} = 0 then 0 else {name} + k * {day.seqs} end"
    if name in _TIMES:
        return f"case when {name} = 0 then 0 else {name} + k * {MS_PER_DAY} end"
    if kind == "VARCHAR" and name in _TEXTS:
        renamed = f"replace({name}, '{MARK}', printf('D%03dx', k))"
        if table == "fact.decision" and name == "body":
            return f"case when type in {_DATED} then {_dated()} else {renamed} end"
        return renamed
    return name


def _dated() -> str:
    """Return the expression for a decision's body with the instants that are read out of it."""
    renamed = f"replace(body, '{MARK}', printf('D%03dx', k))"
    for name in _LATER:
        at = f"(body->>'$.{name}')::bigint"
        later = f"replace({renamed}, '\"{name}\":' || {at}, '\"{name}\":' || ({at} + k * {MS_PER_DAY}))"
        renamed = f"case when {at} > 0 then {later} else {renamed} end"
    return renamed


def _commits(con: duckdb.DuckDBPyConnection, day: Day, days: int) -> None:
    """One commit for what was set up, and one for each day."""
    con.execute("create temp table sole as select * from meta.commit_log")
    con.execute("delete from meta.commit_log")
    con.execute(
        f"""
        insert into meta.commit_log
        select k * {day.seqs} + {day.first_seq - day.seqs} + 1, {day.first_seq} + k * {day.seqs},
            decision_seq + (k - 1) * {day.decisions}, time_ms + (k - 1) * {MS_PER_DAY}, {day.seqs}, {day.cycles}, chain, tip, stated
        from sole, (select unnest(range(1, {days + 1})) as k)
        union all
        select 1, {day.first_seq}, decision_seq - {day.decisions}, time_ms - {MS_PER_DAY}, {day.first_seq}, cycles - {day.cycles},
            chain, tip, stated
        from sole
        order by 2
        """
    )


def _close_books(con: duckdb.DuckDBPyConnection, day: Day, days: int) -> None:
    """Let the core's books go on from day to day: each day adds what the first has added."""
    names = ("supply", "down", "idle", "unfunded", "funded")
    con.execute(f"create temp table book as select * from fact.books where seq <= {day.first_seq + day.seqs}")
    gained = ", ".join(
        f"(max_by({name}_gpu_us, seq) - min_by({name}_gpu_us, seq))::bigint as {name}" for name in names
    )
    con.execute(f"create temp table gain as select pool, {gained} from book group by pool")
    amounts = ", ".join(f"'{name}': b.{name}_gpu_us + k * g.{name}" for name in names)
    con.execute(
        f"""
        update fact.cycle set books = made.books from (
            select b.seq + k * {day.seqs} as seq, to_json([{{'pool': pool, {amounts}, 'pending_milli': b.pending_milli,
                'free_milli': b.free_milli}}])::varchar as books
            from book as b join gain as g using (pool), (select unnest(range(1, {days})) as k)
            where b.seq > {day.first_seq}
        ) as made where made.seq = fact.cycle.seq
        """
    )
    con.execute("update meta.refresh set last_seq = (select max(seq) from fact.cycle)")
