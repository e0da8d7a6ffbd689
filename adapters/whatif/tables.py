"""Both worlds as SQL tables in one DuckDB file: ``history.*`` and ``whatif.*``, with the columns of the projection's ``mart.*``.

Each world goes through the production projector, from the first record on: the prefix before the range is common, then come
history's records, or the played world's. What every mart macro says of the end of the range becomes a table: ``mart.run_at`` is
``whatif.run``, ``mart.burn_at`` is ``whatif.burn``. So one query joins the worlds; ``fact.workload``, ``fact.certificate`` and
``fact.pending_reason`` come along, and ``meta.whatif`` tells what was changed. Heartbeats of the played world tell life and no use,
so it has no utilization.

Reads logs through the ports; writes the file it is given and two beside it, which it removes.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb

from apportion.core.envelope import Record, StoredBatch
from apportion.core.ports import DecisionLog, EventLog
from apportion.projections.runner import Projection

READ_EVENTS, READ_BATCHES = 10_000, 1_000
FACTS = ("workload", "certificate", "pending_reason")
_MACROS = """
select function_name, parameters from duckdb_functions()
where schema_name = 'mart' and function_type = 'table_macro' and parameters in (['q'], ['q', 'ms']) order by function_name
"""


class Worlds:
    """Two projections: of history, and of a played world. ``path`` is the file that is made of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = {name: path.with_name(f"{path.stem}.{name}.building.duckdb") for name in ("history", "whatif")}
        self._played: Projection | None = None
        self._decision_seq = 0
        self.remove()

    def close(self) -> None:
        """Remove what lies beside the file, whatever became of the play."""
        if self._played is not None:
            self._played.close()
        self.remove()

    def remove(self) -> None:
        """Remove what lies beside the file."""
        for file in self._files.values():
            for each in (file, file.with_name(file.name + ".wal")):
                each.unlink(missing_ok=True)

    async def read(self, events: EventLog, decisions: DecisionLog, from_seq: int, to_seq: int) -> None:
        """Project history: up to the beginning of the range for both worlds, then on for history's."""
        projection = await asyncio.to_thread(Projection, self._files["history"])
        try:
            await _ingest(projection, events, decisions, from_seq)
            self._decision_seq = projection.wants_after_decision_seq
            await asyncio.to_thread(_settle, projection)
            projection.close()
            shutil.copyfile(self._files["history"], self._files["whatif"])
            projection = await asyncio.to_thread(Projection, self._files["history"])
            await _ingest(projection, events, decisions, to_seq)
            await asyncio.to_thread(_settle, projection)
        finally:
            projection.close()
        self._played = Projection(self._files["whatif"])

    def keep(self, records: list[Record], batch: StoredBatch | None) -> None:
        """Take a cycle of the played world."""
        assert self._played is not None
        batches = []
        if batch is not None:
            self._decision_seq += 1
            batches.append(batch._replace(seq=self._decision_seq))
        self._played.ingest(records, batches)

    def write(self, words: Sequence[str]) -> list[str]:
        """Write the file and return the names of its tables."""
        assert self._played is not None
        _settle(self._played)
        self._played.close()
        for each in (self.path, self.path.with_name(self.path.name + ".wal")):
            each.unlink(missing_ok=True)
        names: list[str] = []
        for world, file in self._files.items():
            with duckdb.connect(str(file)) as con:
                con.execute(f"attach '{str(self.path).replace(chr(39), chr(39) * 2)}' as made")
                con.execute(f"create schema made.{world}")
                last = con.execute("select last_seq, time_ms from meta.commit_log order by last_seq desc").fetchone()
                seq, time_ms = last or (0, 0)
                if world == "history":
                    con.execute("create schema made.meta")
                    con.execute("create table made.meta.whatif (change varchar)")
                    con.executemany("insert into made.meta.whatif values (?)", [[word] for word in words])
                    con.execute("create schema made.fact")  # where the file stands, as readers of projections ask for it
                    con.execute("create table made.fact.cycle as from fact.cycle where seq = ?", [seq])
                    con.execute("create schema made.mart")
                    con.execute(f"create macro made.mart.readable_seq() as {int(seq)}")
                for macro, parameters in con.execute(_MACROS).fetchall():
                    table = macro.removesuffix("_at")
                    given = [seq, time_ms][: len(parameters)]
                    con.execute(f"create table made.{world}.{table} as from mart.{macro}({', '.join(map(str, given))})")
                    names.append(f"{world}.{table}")
                for fact in FACTS:
                    con.execute(f"create table made.{world}.{fact} as from fact.{fact}")
                    names.append(f"{world}.{fact}")
        self.remove()
        return names


async def _ingest(projection: Projection, events: EventLog, decisions: DecisionLog, to_seq: int) -> None:
    """Bring a projection up to a record."""
    while projection.wants_after_seq < to_seq:
        batches = await decisions.read(projection.wants_after_decision_seq, READ_BATCHES)
        fitting = [batch for batch in batches if batch.input_seq <= to_seq]
        end = to_seq if len(fitting) < len(batches) or not batches else min(to_seq, batches[-1].input_seq)
        await asyncio.to_thread(projection.ingest, (), fitting)
        while projection.wants_after_seq < end:
            records = await events.read(projection.wants_after_seq, min(READ_EVENTS, end - projection.wants_after_seq))
            if not records:
                return
            await asyncio.to_thread(projection.ingest, records, ())


def _settle(projection: Projection) -> None:
    projection.refresh()
    projection.con.execute("checkpoint")
