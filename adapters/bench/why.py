"""``why`` for a job among 100,000 that wait: what the causes take, and the whole of what somebody waits for at a terminal.

The world is that of ``bench cycle``: 2,048 nodes of 8 GPUs, 1,111 budgets. Two parts:

- *the core's*, in CPU time, without I/O: a copy of the state (``copy_ms``), the cycle run on it up to its explanations
  (``cycle_ms``, once per tick that is asked about), all causes of one job with who holds what it needs (``causes_p50_ms``,
  ``causes_p99_ms``, over jobs from all over the queue), one trial cycle (``trial_ms``), all trials of one job (``changes_ms``);
- *the rest*, in wall time, with a real nats-server, and ``apportion project`` as a process of its own, both logs stored in it:
  ``first_ask_ms`` (the projector loads the kernels and reads the log: once), ``ask_p50_ms`` and ``ask_p99_ms`` (all that
  ``why --fast`` asks over the bus, four questions of SQL and the core's, of jobs in turn; ``ask_cpu_ms`` is what the projector's
  process took for one, in CPU time), ``ask_trials_ms`` (with the changes), ``new_tick_ask_ms`` and ``new_tick_cpu_ms`` (the first
  question after another tick), ``cli_ms`` (the command, its start included, the least of ``tries``).

``served=0`` leaves the second part out. The machine was shared if ``noise_ratio`` is far above 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from apportion.adapters.bench.cycle import WAITING_PER_NODE, _noise
from apportion.adapters.bench.worlds.cycles.world import World
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.bus.topology import SIMULATION_DUPLICATE_WINDOW_S
from apportion.adapters.explaining.changes import smallest_changes
from apportion.adapters.explaining.moment import Moment
from apportion.adapters.explaining.report import explanation
from apportion.adapters.explaining.trying import Trials
from apportion.adapters.processes.home import Home
from apportion.adapters.projector import asking
from apportion.adapters.simulation.stated import Stated
from apportion.core.decisions import encode_batch
from apportion.core.engine import Core
from apportion.core.envelope import Record
from apportion.core.state.copying import copy_of
from apportion.core.state.digest import digest

MINUTES = 3
PROJECT = [sys.executable, "-m", "apportion.adapters.cli.main"]


def run(
    nodes: int = 2_048, pending: int = 100_000, jobs: int = 100, served: int = 1, tries: int = 5, seed: int = 1
) -> dict[str, Any]:
    """Return the figures."""
    _core_part(Told(16, seed), 200, 20)  # loads machine code
    world = Told(nodes, seed)
    figures, names = _core_part(world, pending, jobs)
    if served:
        figures |= asyncio.run(_served_part(world, names, tries))
    return {**figures, "noise_ratio": _noise(), "nodes": nodes, "seed": seed}


class Told(World):
    """A world that keeps what is said and decided, as the two logs would."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.records: list[Record] = []
        self.batches: list[tuple[int, bytes]] = []
        self.before: Core | None = None  # the core before the last tick
        super().__init__(nodes, seed)

    def fold(self, event: Stated) -> None:
        """Fold one event, and keep it."""
        self.records.append(Record(len(self.records) + 1, event.at_ms, event.subject, event.body))
        super().fold(event)

    def tick(self, after_ms: int) -> None:
        """Keep the core as it is, and ask for a cycle."""
        self.before = Core(copy_of(self.core.state))
        super().tick(after_ms)

    def decide(self) -> Any:
        """Decide, and keep the batch as it would be stored."""
        seq = self.core.seq
        batch = self.core.decide_unhashed()
        self.batches.append((seq, encode_batch(type(batch)(**{**_fields(batch), "digest": digest(self.core.state)}))))
        self._answer(batch)
        return batch

    @property
    def moment(self) -> Moment:
        """Return the moment of the last tick."""
        assert self.before is not None
        return Moment(self.before, self.records[self.batches[-1][0] - 1])


def _fields(batch: Any) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in batch.__struct_fields__}


def _core_part(world: Told, pending: int, jobs: int) -> tuple[dict[str, Any], list[str]]:
    world.close()
    world.submit(pending + WAITING_PER_NODE * world.setting.nodes)
    world.cycle(1_000)
    world.open()
    world.cycle(1_000)
    for _minute in range(MINUTES):
        count = max(1, world.setting.nodes // 100)
        world.end(count)
        world.submit(count)
        world.cycle(60_000)
    moment = world.moment
    copies = [_ms(moment.copy)[0] for _round in range(5)]
    cycles = [_ms(lambda: Moment(moment.core, moment.tick).cycle)[0] for _round in range(5)]
    state = moment.cycle.state
    queue = state.queue[: state.queued].tolist()
    names = [state.workload.keys[row] for row in queue[:: max(1, len(queue) // jobs)][:jobs]]
    taken = sorted(_ms(partial(explanation, moment, name, trials=False))[0] for name in names)
    trials = Trials(moment, names[0])
    trial = min(_ms(lambda: trials.outcome([]))[0] for _round in range(5))
    several = [_ms(partial(smallest_changes, moment, name)) for name in names[:: max(1, len(names) // 5)][:5]]
    return {
        "copy_ms": round(min(copies), 1), "cycle_ms": round(min(cycles) - min(copies), 1),
        "causes_p50_ms": round(taken[len(taken) // 2], 1), "causes_p99_ms": round(taken[len(taken) * 99 // 100], 1),
        "trial_ms": round(trial, 1), "changes_ms": round(sorted(ms for ms, _found in several)[len(several) // 2], 1),
        "changes_trials": sorted(count for _ms_, (_changes, count) in several)[len(several) // 2], "jobs": len(names),
        "pending": len(queue),
    }, names  # fmt: skip


async def _served_part(world: Told, names: list[str], tries: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="apportion-bench-") as directory:
        home = Home.of(Path(directory) / "home")
        with EmbeddedServer(home, sync="relaxed") as server:
            window_s = SIMULATION_DUPLICATE_WINDOW_S
            async with await Bus.open(server.url, name="bench why", create=True, duplicate_window_s=window_s) as bus:
                await _store(bus, world, 0, 0)
                projector = subprocess.Popen([*PROJECT, "project", "--dir", str(home.root)], stderr=subprocess.DEVNULL)
                try:
                    return await _ask(bus, home, world, names, tries, projector.pid)
                finally:
                    projector.send_signal(signal.SIGTERM)
                    projector.wait(60)


async def _store(bus: Bus, world: Told, after_record: int, after_batch: int) -> None:
    await bus.publisher.send_many((one.subject, one.body, f"r{one.seq}") for one in world.records[after_record:])
    await bus.publisher.flush()
    for seq, body in world.batches[after_batch:]:
        await bus.decisions.commit(body, seq, await bus.decisions.last_seq())


async def _ask(bus: Bus, home: Home, world: Told, names: list[str], tries: int, projector: int) -> dict[str, Any]:
    client, began = bus.connection.client, time.perf_counter()

    async def ready() -> None:
        seq = world.batches[-1][0]
        while True:
            document = await asking.ask(client, "wait", {"seq": seq, "timeout_ms": 1_000}, timeout_s=30)
            if (document.get("as_of") or {}).get("seq", 0) >= seq:
                return
            await asyncio.sleep(0.2)

    async def why(name: str, trials: bool = False) -> float:
        started = time.perf_counter()
        (asked,) = (await asking.ask(client, "workload", {"workload": name}))["rows"]
        told = await asking.ask(client, "why", {"workload": name})
        await asking.ask(client, "estimates", {"budget": asked["budget"]})
        await asking.ask(client, "waited", {"budget": asked["budget"], "gpus_milli": asked["gpus_milli"]})
        question = {"seq": told["as_of"]["seq"], "workload": name, "trials": trials}
        while "error" in (found := await asking.ask(client, "explain", question)):
            if found["error"]["kind"] != "time":
                raise RuntimeError(str(found["error"]))
        assert found["rows"][0]["explanation"]["causes"]
        return 1_000 * (time.perf_counter() - started)

    await _until_answered(client)
    await ready()
    projected_s = time.perf_counter() - began
    first = await why(names[0])
    before_s = _cpu_s(projector)
    taken = sorted([await why(name) for name in names])
    cpu_ms = 1_000 * (_cpu_s(projector) - before_s) / len(names)
    trials = sorted([await why(name, trials=True) for name in names[:: max(1, len(names) // 5)][:5]])
    records, batches = len(world.records), len(world.batches)
    world.cycle(60_000)
    await _store(bus, world, records, batches)
    await ready()
    before_s = _cpu_s(projector)
    new_tick = await why(names[1])
    new_tick_cpu_ms = 1_000 * (_cpu_s(projector) - before_s)
    command = [*PROJECT, "why", names[2], "--fast", "--dir", str(home.root), "--json"]
    cli = [await asyncio.to_thread(_wall_ms, command) for _try in range(tries)]
    return {
        "first_ask_ms": round(first), "ask_cpu_ms": round(cpu_ms, 1), "ask_p50_ms": round(taken[len(taken) // 2], 1),
        "ask_p99_ms": round(taken[len(taken) * 99 // 100], 1), "ask_trials_ms": round(trials[len(trials) // 2]),
        "new_tick_ask_ms": round(new_tick), "new_tick_cpu_ms": round(new_tick_cpu_ms, 1),
        "cli_ms": round(min(cli)), "projected_s": round(projected_s, 1),
        "records": records,
    }  # fmt: skip


async def _until_answered(client: Any) -> None:
    while True:
        try:
            if "error" not in await asking.ask(client, "status", timeout_s=2):
                return
        except asking.NoAnswer:
            pass
        await asyncio.sleep(0.2)


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wall_ms(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
    return 1_000 * (time.perf_counter() - began)


def _ms(what: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = what()
    return 1_000 * (time.process_time() - began), found
