"""What a child of ``up`` runs: ``python -m apportion.adapters.local.component NAME ...``.

One of the program's processes, wired to its parent by two descriptors named in the environment: on one it writes a line
when it is ready, on the other it learns that the parent is gone, and then ends as if it had been told to (SIGTERM).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from apportion.adapters.build import keep_kernels_apart

READY_FD = "APPORTION_READY_FD"
LIFELINE_FD = "APPORTION_LIFELINE_FD"
COMPONENTS = ("core", "projector", "agent", "ingress")


def tell_ready(line: str) -> None:
    """Print the line, and pass it to the parent that waits on ``$APPORTION_READY_FD``."""
    print(f"ready: {line}", flush=True)
    descriptor = os.environ.pop(READY_FD, "")
    if descriptor.isdigit():
        try:
            os.write(int(descriptor), line.encode() + b"\n")
            os.close(int(descriptor))
        except OSError:
            return


def end_with_parent() -> None:
    """Send this process SIGTERM when the parent's end of ``$APPORTION_LIFELINE_FD`` closes."""
    descriptor = os.environ.pop(LIFELINE_FD, "")
    if not descriptor.isdigit():
        return
    number = int(descriptor)
    os.set_inheritable(number, False)

    def wait() -> None:
        while os.read(number, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def close_inheritance() -> None:
    """Keep the parent's pipe out of the processes this one starts: runs outlive it."""
    descriptor = os.environ.get(READY_FD, "")
    if descriptor.isdigit():
        os.set_inheritable(int(descriptor), False)


def work(options: argparse.Namespace, ready: Callable[[str], None]) -> Coroutine[Any, Any, None]:
    """Return what the named component does. Imports only what it needs."""
    from apportion.adapters.home import Home

    home = Home.of(options.dir)
    if options.name == "core":
        from apportion.adapters.service import serve

        return serve(home, ready=ready)
    if options.name == "projector":
        from apportion.adapters import projector

        return projector.serve(home, ready=ready)
    if options.name == "ingress":
        return _ingress(options, ready)
    from apportion.adapters.agent.agent import AgentSettings
    from apportion.adapters.agent.main import serve as serve_agent

    settings = AgentSettings(node=options.node, pool=options.pool, principal=options.principal, beat_ms=options.beat_ms)
    return serve_agent(home, settings, simulated=options.gpus or None, ready=ready)


async def _ingress(options: argparse.Namespace, ready: Callable[[str], None]) -> None:
    from apportion.adapters.bus.server import EmbeddedServer
    from apportion.adapters.home import Home
    from apportion.adapters.ingress.app import serve as serve_ingress

    server = EmbeddedServer.running(Home.of(options.dir))
    if server is None:
        raise SystemExit("no nats-server runs")
    stop = asyncio.Event()
    for how in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(how, stop.set)
    ready(f"answers requests at {server.url}")
    await serve_ingress(server.url, stop)


def main(argv: list[str] | None = None) -> int:
    """Run one component; return its exit code."""
    parser = argparse.ArgumentParser(prog="apportion.adapters.local.component")
    parser.add_argument("name", choices=COMPONENTS)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--node", default="")
    parser.add_argument("--pool", default="local")
    parser.add_argument("--principal", default="")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--beat-ms", type=int, default=10_000)
    options = parser.parse_args(argv)
    keep_kernels_apart()
    close_inheritance()
    end_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    from apportion.core.errors import ApportionError

    try:
        asyncio.run(work(options, tell_ready))
    except ApportionError as error:
        logging.getLogger("apportion").error("%s", error)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
