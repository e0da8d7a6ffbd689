"""What a child of ``up`` runs: ``python -m apportion.adapters.local.component NAME ...``.

One of the program's processes, wired to its parent by two descriptors named in the environment: on one it writes a line
when it is ready, and further lines that a person should read; on the other it learns that the parent is gone, and then ends
as if it had been told to (SIGTERM).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from apportion.adapters.processes.build import keep_kernels_apart

WORDS_FD = "APPORTION_WORDS_FD"
LIFELINE_FD = "APPORTION_LIFELINE_FD"
COMPONENTS = ("core", "projector", "agent", "ingress")
READY = "ready: "  # how the line begins that says so

_words = -1  # where the parent reads


def tell(line: str) -> None:
    """Print a line, and pass it to the parent."""
    print(line, flush=True)
    if _words != -1:
        with contextlib.suppress(OSError):  # the parent is gone
            os.write(_words, line.encode() + b"\n")


def tell_ready(line: str) -> None:
    """Tell that this process is ready."""
    tell(READY + line)


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


def speak_to_parent() -> None:
    """Take over ``$APPORTION_WORDS_FD``, and keep it out of the processes this one starts: runs outlive the parent."""
    global _words
    descriptor = os.environ.pop(WORDS_FD, "")
    if descriptor.isdigit():
        _words = int(descriptor)
        os.set_inheritable(_words, False)


def work(options: argparse.Namespace, ready: Callable[[str], None]) -> Coroutine[Any, Any, None]:
    """Return what the named component does. Imports only what it needs."""
    from apportion.adapters.processes.home import Home

    home = Home.of(options.dir)
    if options.name == "core":
        from apportion.adapters.service import serve

        return serve(home, ready=ready)
    if options.name == "projector":
        from apportion.adapters.projector.listening import Door
        from apportion.adapters.projector.process import serve as serve_projector

        return serve_projector(home, ready=ready, http=Door(port=options.http) if options.http >= 0 else None)
    if options.name == "ingress":
        return _ingress(options, ready)
    from apportion.adapters.agent.agent import AgentSettings
    from apportion.adapters.agent.main import serve as serve_agent

    settings = AgentSettings(node=options.node, pool=options.pool, principal=options.principal, beat_ms=options.beat_ms)
    return serve_agent(home, settings, simulated=options.gpus or None, ready=ready, tell=tell)


async def _ingress(options: argparse.Namespace, ready: Callable[[str], None]) -> None:
    from apportion.adapters.bus.server import EmbeddedServer
    from apportion.adapters.ingress.app import serve as serve_ingress
    from apportion.adapters.processes.home import Home

    server = EmbeddedServer.running(Home.of(options.dir))
    if server is None:
        raise SystemExit("no nats-server runs")
    await serve_ingress(server.url, asyncio.Event(), ready=ready)


def main(argv: list[str] | None = None) -> int:
    """Run one component; return its exit code."""
    parser = argparse.ArgumentParser(prog="apportion.adapters.local.component")
    parser.add_argument("name", choices=COMPONENTS)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--node", default="")
    parser.add_argument("--pool", default="local")
    parser.add_argument("--principal", default="")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--http", type=int, default=-1)  # port of live reads; -1 = none
    parser.add_argument("--beat-ms", type=int, default=10_000)
    options = parser.parse_args(argv)
    keep_kernels_apart()
    speak_to_parent()
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
