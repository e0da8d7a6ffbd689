"""Verbs that run processes: up, demo, serve, project, agent, ingress, and bench.

``up`` is all of them in one tree with the embedded server, for one machine. Each verb runs until a signal ends it; ending
the agent leaves its runs under their supervisors, and the next start adopts them.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apportion.adapters.cli.asking import no_server, server_url
from apportion.adapters.cli.failure import FAILED, Failure, usage
from apportion.adapters.cli.family import Family
from apportion.adapters.cli.output import Answer
from apportion.adapters.cli.verbs import Place, lasting, principal_now, verb

if TYPE_CHECKING:
    import asyncio

    from apportion.adapters.home import Home

PANEL = "Run it"
LOOK_EVERY_S = 1.0
READY_S = 60.0
Gpus = Annotated[
    int | None, typer.Option("--gpus", min=1, max=72, metavar="N", help="Simulate N GPUs [default: the real ones]")
]
Node = Annotated[str, typer.Option("--node", metavar="NAME", help="The node's name [default: the host's]")]


def add_to(app: typer.Typer) -> None:
    """Register the verbs."""
    app.command("up", rich_help_panel=PANEL)(verb(up))
    app.command("demo", rich_help_panel=PANEL)(verb(demo))
    app.command("serve", rich_help_panel=PANEL)(verb(serve))
    app.command("project", rich_help_panel=PANEL)(verb(project))
    app.command("agent", rich_help_panel=PANEL)(verb(agent))
    app.command("ingress", rich_help_panel=PANEL)(verb(ingress))
    app.command("bench", rich_help_panel=PANEL)(verb(bench))


def say(text: str) -> None:
    """Tell the person at the terminal, on stderr: stdout belongs to answers."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def up(
    place: Place,
    gpus: Gpus = None,
    node: Node = "",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool's name")] = "local",
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The operator of a new log [default: your user name]")
    ] = None,
    with_ingress: Annotated[bool, typer.Option("--ingress", help="Answer services over request and reply too")] = False,
) -> Answer:
    """Run it all on this machine: server, core, projector, agent."""
    from apportion.adapters.agent.naming import node_name

    if place.server:
        raise usage(
            "`up` runs its own server, so --server has no meaning", "`apportion serve --server URL` uses another one"
        )
    home = place.home.ensure()
    principal = principal_now(as_)
    name = node_name(node or os.uname().nodename)
    simulated = gpus if gpus is not None else _simulated()
    with _alone(home):
        await _up(home, principal, name, pool, simulated, with_ingress)
    return Answer()


def _simulated() -> int | None:
    """Return None when the machine has GPUs that NVML knows, else 8 simulated ones."""
    from apportion.adapters.agent import nvml

    try:
        nvml.find()
    except nvml.NoGpus:
        return 8
    return None


class _alone:  # noqa: N801 - reads as a statement
    """Hold the installation's lock, or say who does."""

    def __init__(self, home: Home) -> None:
        self._path = home.root / "up.lock"

    def __enter__(self) -> None:
        self._file = self._path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            pid = self._file.read().strip() or "?"
            self._file.close()
            raise Failure(
                FAILED,
                f"`apportion up` already runs for {self._path.parent} (pid {pid})",
                "use it as it is, or choose another directory with --dir",
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def __exit__(self, *_exc: object) -> None:
        self._file.close()


async def _up(home: Home, principal: str, node: str, pool: str, simulated: int | None, with_ingress: bool) -> None:
    import asyncio

    from apportion.adapters.bus.local import Bus
    from apportion.adapters.bus.server import EmbeddedServer, ServerError
    from apportion.adapters.cli.opening import open_log

    server = EmbeddedServer(home)
    try:
        server.start()
    except ServerError as error:
        raise Failure(FAILED, str(error), f"read {server.log_path}; free the port or the disk") from None
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(ending, stop.set)
    family = Family(home, say)
    try:
        gpu_class = "simulated" if simulated is not None else "gpu"
        async with await Bus.at_home(home, name="apportion up", create=True) as bus:
            opened = await open_log(bus, principal, pool, gpu_class)
            if opened:
                say(f"opened a new log in {home.root}; {principal} operates it")
            family.add("core", "serve")
            family.add("projector", "project")
            gpu_options = ["--gpus", str(simulated)] if simulated is not None else []
            family.add("agent", "agent", "--node", node, "--pool", pool, *gpu_options)
            if with_ingress:
                family.add("ingress", "ingress")
            await _ready(bus.connection.client, family, stop, node)
        if not stop.is_set():
            say(
                f"ready: node {node} with {f'{simulated} simulated' if simulated is not None else 'its real'} GPUs in pool "
                f"{pool}; nats-server at {server.url}; logs in {home.logs}"
            )
            shown = "" if str(home.root) == str(Path.cwd() / ".apportion") else f" --dir {home.root}"
            say(
                f"try, in another terminal:\n  apportion submit{shown} --budget lab/llm/olmo --gpus 2 --min-runtime 10m "
                f"--name hello -- sleep 60\n  apportion queue{shown}"
            )
        await _watch(family, server, stop)
    finally:
        say("stopping; runs keep running under their supervisors, and the next `apportion up` adopts them")
        family.stop()
        server.stop()


async def _ready(client: Any, family: Family, stop: asyncio.Event, node: str) -> None:
    """Wait until the projector shows the node as joined."""
    import asyncio

    from apportion.adapters.cli.asking import asked

    deadline = asyncio.get_running_loop().time() + READY_S
    while not stop.is_set():
        family.look()
        try:
            reply = await asked(client, "nodes", timeout_s=1.0)
            if any(row["node"] == node for row in reply.rows):
                return
        except Failure:
            pass
        if asyncio.get_running_loop().time() > deadline:
            ends = "\n".join(f"{child.name}:\n{child.log_end()}" for child in family.children)
            raise Failure(FAILED, f"not ready after {READY_S:.0f} s; the logs end with\n{ends}", "`apportion doctor`")
        await asyncio.sleep(0.1)


async def _watch(family: Family, server: Any, stop: asyncio.Event) -> None:
    """Look after the children, and the server, until told to stop."""
    import asyncio

    from apportion.adapters.bus.server import EmbeddedServer

    while not stop.is_set():
        family.look()
        if EmbeddedServer.running(family.home) is None and not stop.is_set():
            say("nats-server is gone; starting it again")
            server.start()
        try:
            await asyncio.wait_for(stop.wait(), LOOK_EVERY_S)
        except TimeoutError:
            continue


async def demo(
    place: Place,
    days: Annotated[int | None, typer.Option("--days", min=1, metavar="N", help="How many days [default: 7]")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="PATH", help="Read this public trace instead")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the generator")] = 1,
) -> Answer:
    """Play a week of 512 GPUs through a real server; print its statement."""
    from apportion.adapters.demo import main as demo_main

    return await demo_main.command(place, days=days, trace=trace, seed=seed)


async def serve(
    place: Place,
    standby: Annotated[
        bool, typer.Option("--standby", help="Follow and check, and take over when the leader is gone")
    ] = False,
) -> Answer:
    """Run the core: read events, decide, write decisions."""
    from apportion.adapters import service

    await service.serve(place.home, url=_url(place), standby=standby)
    return Answer()


async def project(place: Place) -> Answer:
    """Run the projector: the DuckDB projection that answers reads."""
    from apportion.adapters import projector

    await projector.serve(place.home, url=_url(place))
    return Answer()


async def agent(
    place: Place,
    node: Node = "",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool to join")] = "local",
    gpus: Gpus = None,
    principal: Annotated[
        str, typer.Option("--principal", metavar="NAME", help="Publish as [default: agent-NODE]")
    ] = "",
    beat: Annotated[int, lasting("Time between heartbeats")] = 10_000,
) -> Answer:
    """Run one node's agent: start what is placed, report what happens."""
    import logging

    from apportion.adapters.agent.agent import AgentSettings
    from apportion.adapters.agent.main import serve as serve_agent
    from apportion.adapters.agent.main import tell_ready
    from apportion.adapters.agent.naming import node_name, principal_token

    if beat < 100:
        raise usage(f"--beat {beat} ms is too short", "at least 100ms; 10s is usual")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    name = node_name(node or os.uname().nodename)
    settings = AgentSettings(
        node=name, pool=pool, principal=principal or principal_token(f"agent-{name}"), beat_ms=beat
    )
    await serve_agent(place.home, settings, simulated=gpus, url=_url(place), ready=tell_ready)
    return Answer()


async def ingress(place: Place) -> Answer:
    """Run the service surface: request and reply in any language."""
    import asyncio
    import logging

    from apportion.adapters.ingress.app import serve as serve_ingress

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    stop = asyncio.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(ending, stop.set)
    await serve_ingress(_url(place), stop)
    return Answer()


def _url(place: Place) -> str:
    url = server_url(place)
    if url is None:
        raise no_server(place)
    return url


async def bench(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which measurement; without a name they are listed")] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the measurement; repeat for more"),
    ] = None,
) -> Answer:
    """Measure: fold, latency, reader, projector and others."""
    import asyncio
    import importlib
    import pkgutil

    from apportion.adapters import bench as measurements

    found = {module.name: module for module in pkgutil.iter_modules(measurements.__path__) if module.name[:1] != "_"}
    known = [one for one in sorted(found) if hasattr(importlib.import_module(f"{measurements.__name__}.{one}"), "run")]
    if not name:
        lines = [f"  {one}: {_first_line(importlib.import_module(f'{measurements.__name__}.{one}'))}" for one in known]
        return Answer(lines=["measurements (apportion bench NAME --json):", *lines], document={"measurements": known})
    if name not in known:
        raise usage(f"there is no measurement {name!r}", f"there are {', '.join(known) or 'none'}")
    options = dict(_option(text) for text in option or [])
    module = importlib.import_module(f"{measurements.__name__}.{name}")
    result: dict[str, Any] = await asyncio.to_thread(module.run, **options)
    lines = [f"{key}: {value:,}" if isinstance(value, int) else f"{key}: {value}" for key, value in result.items()]
    return Answer(lines=lines, document=result)


def _option(text: str) -> tuple[str, Any]:
    import json

    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise usage(f"--set {text!r} is not KEY=VALUE", "such as --set events=100000")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _first_line(module: Any) -> str:
    return (module.__doc__ or "").strip().splitlines()[0] if module.__doc__ else ""
