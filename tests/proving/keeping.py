"""Logs in a file, which every process can open for itself, and one way of opening them that is fatal to workers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from apportion.adapters.logs.memory import MemoryDecisionLog, MemoryEventLog
from apportion.adapters.simulation.driver import Logs
from apportion.core.envelope import Record, StoredBatch
from apportion.core.errors import LogMismatch


class Events(MemoryEventLog):
    """EVENTS as records made elsewhere."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__()
        self._records = list(records)


class Decisions(MemoryDecisionLog):
    """DECISIONS as batches made elsewhere; with ``parts`` each takes that many sequences, and reading inside one fails."""

    def __init__(self, batches: list[StoredBatch], parts: int = 1) -> None:
        super().__init__()
        self._batches = [batch._replace(seq=number * parts) for number, batch in enumerate(batches, 1)]
        self._parts = parts

    async def last_seq(self) -> int:
        return self._batches[-1].seq if self._batches else 0

    async def read(self, after_seq: int, limit: int) -> list[StoredBatch]:
        if after_seq % self._parts:
            raise LogMismatch(f"seq {after_seq} is in the middle of a batch")
        return await super().read(after_seq // self._parts, limit)


@dataclass(frozen=True)
class Both:
    """Both logs, open."""

    events: Events
    decisions: Decisions


def keep(path: Path, logs: Logs) -> Path:
    """Write logs where other processes find them."""
    path.write_bytes(pickle.dumps((logs.records, logs.batches)))
    return path


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Both]:
    """Open kept logs."""
    records, batches = pickle.loads(path.read_bytes())
    yield Both(Events(records), Decisions(batches))


@asynccontextmanager
async def fatal(path: Path) -> AsyncIterator[Both]:
    """Open kept logs, and kill the process that does so unless it is the first one."""
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    async with opened(path) as both:
        yield both
