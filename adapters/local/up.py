"""A cluster on one machine: embedded nats-server, core, projector, and one node agent, as one process tree.

Decides nothing about the log beyond its first records. It starts the parts in order, starts again what dies, and ends
them in the reverse order when told to: the agent, then the readers, then the core (which makes a snapshot), then the
server. Any of them may be killed at any point; each finds its place in the log again. Each part has a bound for its end, with
or without a server, and the person at the terminal hears which part is waited for.

It must never end a run: runs live under their supervisors and are adopted at the next start. Only ``stop_runs`` ends
them, within their graces, and takes the node out of the pool first.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from apportion.adapters.agent import nvml
from apportion.adapters.agent.naming import node_name, principal_token
from apportion.adapters.bus.local import Bus
from apportion.adapters.bus.server import EmbeddedServer, ServerError
from apportion.adapters.local import opening
from apportion.adapters.local.children import Child, ended_with
from apportion.adapters.local.names import host_node, user_principal
from apportion.adapters.processes import ending
from apportion.adapters.processes.compiling import compile_kernels, is_needed
from apportion.adapters.processes.home import DEFAULT_DIR, Home
from apportion.adapters.text import render
from apportion.core.errors import ApportionError

SIMULATED_GPUS = 8
STOP_RUNS_PATIENCE_S = 3_700.0  # the longest grace is an hour; the agent itself stops waiting when those of its runs are over
END_WITHIN_S = 10.0  # for what is left when the parts have ended
SERVER_START_S = 5.0  # for a start of the server that is under way then, to hear that it is given up
SERVER_RETRY_S = 1.0
STILL_WAITING_S = 10.0
Tell = Callable[[str], None]


class AlreadyUp(ApportionError):
    """Another ``apportion up`` holds this directory."""


@dataclass(frozen=True)
class UpOptions:
    """What ``apportion up`` is asked for. Empty names mean the user's and the host's."""

    operator: str = ""
    node: str = ""
    pool: str = "local"
    gpus: int | None = SIMULATED_GPUS  # simulated; None: the machine's own (``real_gpus_or`` chooses)
    stop_runs: bool = False
    ingress: bool = False
    beat_ms: int = 5_000
    http_port: int = 0  # of live reads, on loopback; 0 = a free one
    components: tuple[str, ...] = field(default=("core", "projector", "agent"))


def real_gpus_or(simulated: int = SIMULATED_GPUS) -> int | None:
    """Return None when NVML finds GPUs on this machine, else how many to simulate."""
    try:
        nvml.find()
    except nvml.NoGpus:
        return simulated
    return None


async def up(home: Home, options: UpOptions, tell: Tell, stop: asyncio.Event | None = None) -> None:
    """Run the cluster until SIGTERM, an interrupt, or ``stop``; ``tell`` gets one line per thing worth knowing.

    Raises ``AlreadyUp``, ``ServerError``, ``ChildFailed``, ``OtherLog``: each says what to do.
    """
    stopping, signalled = stop or asyncio.Event(), False
    loop = asyncio.get_running_loop()

    def told() -> None:
        nonlocal signalled
        signalled = True
        stopping.set()

    for how in ending.SIGNALS:
        loop.add_signal_handler(how, told)
    try:
        with _alone(home.ensure()):
            await Tree(home, options, tell).run(stopping)
    finally:
        for how in ending.SIGNALS:
            loop.remove_signal_handler(how)
        if signalled:
            ending.last_resort("apportion up", END_WITHIN_S)


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Hold the directory's lock, or say who does."""
    path = home.root / "up.lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AlreadyUp(
                f"`apportion up` already runs for {home.root} (pid {lock.read().strip() or '?'}); "
                "use it as it is, or choose another directory with --dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


class Tree:
    """The server and the children of one directory."""

    def __init__(self, home: Home, options: UpOptions, tell: Tell) -> None:
        self._home = home
        self._options = options
        self._tell = tell
        self._server = EmbeddedServer(home)
        user, user_note = user_principal()
        host, host_note = host_node()
        self._operator = options.operator or user
        self._node = node_name(options.node) if options.node else host
        if options.node not in ("", self._node):
            host_note = f"node {options.node!r} is named {self._node!r}: a node's name has no other characters"
        for note in (user_note * (not options.operator), host_note * (options.node != self._node)):
            if note:
                tell(f"{'note':<12} {note}")
        self.children: list[Child] = []
        self._starting: asyncio.Task[EmbeddedServer] | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Start everything, keep it running until ``stopping``, end everything."""
        self._home.logs.mkdir(parents=True, exist_ok=True)
        if not await self._compiled(stopping):
            return
        await asyncio.to_thread(self._server.start)
        self._tell(f"{'server':<12} pid {self._server.pid}  {self._server.url}")
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(stopping.wait(), name="stop")]
        tasks.append(asyncio.create_task(self._keep_server(), name="server"))
        try:
            await self._open()
            self.children = self._describe()
            tasks += [asyncio.create_task(child.keep(), name=child.name) for child in self.children]
            tasks.append(asyncio.create_task(self._announce()))
            while not stopping.is_set():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                tasks = [task for task in tasks if task not in done]
        finally:
            await self._end(tasks)

    async def _compiled(self, stopping: asyncio.Event) -> bool:
        """Have the kernels compiled, so that the first job does not wait for it; False when that was given up."""
        if is_needed():
            self._tell(f"{'kernels':<12} compiling, once per version; about a minute")
            compiled = await ending.until_stopped(stopping, compile_kernels())
            if compiled is None:
                self._tell(f"{'kernels':<12} not compiled; the next start begins with it")
                return False
            self._tell(f"{'kernels':<12} compiled in {compiled.result():.0f} s")
        return True

    async def _open(self) -> None:
        gpu_class = "simulated" if self._options.gpus is not None else "nvidia"
        async with await Bus.at_home(self._home, name="apportion up", create=True) as bus:
            opened = await opening.complete(bus, self._operator, self._options.pool, gpu_class)
        if opened.published:
            self._tell(
                f"{'log':<12} {opened.log_id}: {render.many(opened.published, 'record')} of set-up; operators "
                f"{', '.join(opened.operators)}; pool {opened.pool}; budgets {', '.join(p for p, _ in opening.TREE)}"
            )

    def _describe(self) -> list[Child]:
        options = self._options
        wanted = [*options.components, *(["ingress"] if options.ingress else [])]
        agent = [
            *("--node", self._node, "--pool", options.pool, "--beat-ms", str(options.beat_ms)),
            *("--principal", principal_token(f"agent-{self._node}"), "--gpus", str(options.gpus or 0)),
        ]
        return [
            Child(
                name,
                [
                    *("-m", "apportion.adapters.local.component", name, "--dir", str(self._home.root)),
                    *(agent if name == "agent" else []),
                    *(["--http", str(options.http_port)] if name == "projector" else []),
                ],
                self._home.logs / f"{name}.log",
                self._tell,
            )
            for name in wanted
        ]

    async def _announce(self) -> None:
        """Say when everything is ready, and what to do next."""
        for child in self.children:
            while not child.ready.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STILL_WAITING_S):
                        await child.ready.wait()
                if not child.ready.is_set():
                    self._tell(f"{child.name:<12} not ready yet, still waiting (log: {child.log_path})")
        here = shlex.quote(str(self._home.root))
        shown = "" if self._home.root == Home.of(DEFAULT_DIR).root else f" --dir {here}"
        count = f"{self._options.gpus} simulated" if self._options.gpus is not None else "its own"
        self._tell(
            f"ready: node {self._node} offers {count} GPUs in pool {self._options.pool}; logs in {self._home.logs}\n"
            "next, in another terminal:\n"
            f"  apportion submit{shown} --budget lab/llm/olmo --gpus 2 --min-runtime 10m --name hello -- sleep 60\n"
            f"  apportion status{shown}\n"
            f"  apportion queue{shown}"
        )

    async def _keep_server(self) -> None:
        """Start the server again whenever it is gone; its clients find it at the same port."""
        while True:
            await _gone(self._server.pid)
            self._tell(f"{'server':<12} is gone; starting it again (log: {self._server.log_path})")
            while True:
                try:
                    self._starting = asyncio.create_task(asyncio.to_thread(self._server.start))
                    await asyncio.shield(self._starting)  # a thread cannot be cancelled: ``_end`` waits for it
                    break
                except (ServerError, OSError) as error:
                    self._tell(f"{'server':<12} {error}; again in {SERVER_RETRY_S:g} s")
                    await asyncio.sleep(SERVER_RETRY_S)
            self._tell(f"{'server':<12} pid {self._server.pid}  {self._server.url}")

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        if self._options.stop_runs:
            self._tell("stopping; runs are stopped within their graces, and the node leaves")
        else:
            self._tell("stopping; runs keep running, the next start adopts them (--stop-runs would stop them)")
        for child in reversed(self.children):
            if child.name == "agent" and self._options.stop_runs:
                await child.stop(signal.SIGUSR1, STOP_RUNS_PATIENCE_S)
            else:
                await child.stop()
            if child.process is not None:
                self._tell(f"{child.name:<12} stopped ({ended_with(child.process.returncode or 0)})")
        await ending.let_go(*tasks)
        if self._starting is not None and not self._starting.done():
            self._server.give_up()
            self._tell(f"{'server':<12} does not come up; its start is given up")
            done, _ = await asyncio.wait((self._starting,), timeout=SERVER_START_S)
            for start in done:
                start.exception()  # that it was given up is no news
        stopping = asyncio.create_task(asyncio.to_thread(self._server.stop))
        while not (await asyncio.wait((stopping,), timeout=STILL_WAITING_S))[0]:
            self._tell(f"{'server':<12} is still ending (log: {self._server.log_path})")
        stopping.result()
        self._tell(f"{'server':<12} stopped")


async def _gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
