"""The agent as a process: ``python -m apportion.adapters.agent.main``, and ``apportion agent``.

Composition only. SIGTERM or an interrupt ends the agent within seconds, whether a server answers or not, and leaves its
runs under their supervisors, to be adopted at the next start. SIGUSR1 makes the node leave: runs are stopped within their
graces first. The exit code is 0 in both cases, 1 where a person must look (the text says why), and ``ending.FORCED`` if
the process had to be ended by its last resort, which touches no run either.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable

from apportion.adapters.agent import nvml
from apportion.adapters.agent.agent import Agent, AgentSettings
from apportion.adapters.agent.gpus import GpuSource, SimulatedGpus
from apportion.adapters.agent.memory import Memory
from apportion.adapters.agent.naming import node_name, principal_token
from apportion.adapters.bus.local import Bus
from apportion.adapters.processes import ending
from apportion.adapters.processes.home import Home
from apportion.core.errors import ApportionError

logger = logging.getLogger("apportion.agent")

END_WITHIN_S = 10.0  # from SIGTERM, or from the end of leaving, to the end of the process


def choose_gpus(simulated: int | None, known_ids: tuple[str, ...] = ()) -> GpuSource:
    """Return ``simulated`` GPUs, or with None the machine's own. Raises ``nvml.NoGpus``."""
    if simulated is not None:
        return SimulatedGpus(simulated)
    return nvml.find(known_ids)


async def serve(
    home: Home,
    settings: AgentSettings,
    *,
    simulated: int | None,
    url: str = "",
    ready: Callable[[str], None] = lambda _line: None,
    tell: Callable[[str], None] = logger.info,
) -> None:
    """Be the agent of ``settings.node`` until a signal ends it; ``url`` empty means the home's embedded server.

    ``ready`` is called with one line when the node has joined, ``tell`` with what leaving waits for. Raises
    ``ApportionError`` for everything a person must look at.
    """
    memory = Memory(home.agents / settings.node, settings.node, settings.principal)
    try:
        known = memory.identity.gpu_ids if memory.identity.gpu_kind == "nvml" else ()
        gpus = choose_gpus(simulated, known)
        name = f"agent {settings.node}"
        async with await (Bus.open(url, name=name, archives=(home.archive,)) if url else Bus.at_home(home, name=name)) as bus:
            agent = Agent(settings, gpus, bus, memory)
            loop = asyncio.get_running_loop()
            leaving: list[asyncio.Task[None]] = []

            def leave() -> None:
                if not leaving:
                    leaving.append(loop.create_task(agent.leave("stopped with its runs", tell)))
                    leaving[0].add_done_callback(lambda _left: ending.last_resort(name, END_WITHIN_S))

            loop.add_signal_handler(signal.SIGUSR1, leave)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR1,))  # who started us may have kept it back till now
            line = f"node {settings.node} joined pool {settings.pool} with {gpus.count} {gpus.kind} GPUs"
            with ending.on_signals(name, agent.stop, END_WITHIN_S):
                await agent.run(lambda: ready(line))
    finally:
        memory.close()


def tell_ready(line: str) -> None:
    """Print the line that says that the node has joined."""
    print(f"ready: {line}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the agent from the command line; return the exit code."""
    host = node_name(socket.gethostname())
    parser = argparse.ArgumentParser(prog="apportion agent", description="Run the agent of one node.")
    parser.add_argument("--dir", default=None, help="state directory (default: $APPORTION_DIR or .apportion)")
    parser.add_argument("--url", default="", help="NATS URL (default: the embedded server of --dir)")
    parser.add_argument("--node", default=host, help=f"name of the node (default: {host})")
    parser.add_argument("--pool", default="local", help="pool to join (default: local)")
    parser.add_argument("--at", default="", help="where the node is, widest level first, such as spine1/rack3")
    parser.add_argument("--place", type=int, default=None, help="its place in the order of the pool's topology, for blocks")
    parser.add_argument("--label", action="append", metavar="NAME=VALUE", help="a label the node bears; repeat for more")
    parser.add_argument("--principal", default="", help="principal to publish as (default: agent-NODE)")
    parser.add_argument("--gpus", type=int, default=None, help="simulate so many GPUs (default: the real ones)")
    parser.add_argument("--beat-ms", type=int, default=10_000, help="time between heartbeats (default: 10000)")
    options = parser.parse_args(argv)
    if options.gpus is not None and not 1 <= options.gpus <= 72:
        parser.error(f"--gpus is {options.gpus}; a node has 1 to 72")
    if options.beat_ms < 100:
        parser.error(f"--beat-ms is {options.beat_ms}; it must be at least 100")
    settings = AgentSettings(
        node=options.node,
        pool=options.pool,
        principal=options.principal or principal_token(f"agent-{options.node}"),
        domains=tuple(options.at.split("/")) if options.at else (),
        place=options.place,
        labels=dict(text.partition("=")[::2] for text in options.label) if options.label else None,
        beat_ms=options.beat_ms,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        asyncio.run(serve(Home.of(options.dir), settings, simulated=options.gpus, url=options.url, ready=tell_ready))
    except ApportionError as error:
        logger.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
