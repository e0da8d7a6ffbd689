"""Verbs that run processes: up, demo, serve, project, agent, ingress, and bench.

``up`` is all of them in one tree with the embedded server, for one machine. Each verb runs until a signal ends it; ending
the agent leaves its runs under their supervisors, and the next start adopts them. None of them needs a server to end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from apportion.adapters.cli.asking import no_server, server_url
from apportion.adapters.cli.failure import FAILED, usage
from apportion.adapters.cli.output import Answer, Section
from apportion.adapters.cli.verbs import Place, lasting, principal_now, use_kernels, verb, whole

PANEL = "Run it"
Gpus = Annotated[
    int | None,
    typer.Option("--gpus", parser=whole(1, 72), metavar="N", help="Simulate N GPUs [default: the real ones]"),
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
    beat: Annotated[int, lasting("Time between heartbeats", "5s")] = 5_000,
    stop_runs: Annotated[
        bool, typer.Option("--stop-runs", help="At the end, stop the runs and leave the pool")
    ] = False,
    with_ingress: Annotated[bool, typer.Option("--ingress", help="Answer services over request and reply too")] = False,
    http: Annotated[
        int, typer.Option("--http", parser=whole(0, 65_535), metavar="PORT", help="Port of live reads over HTTP; 0 = a free one")
    ] = 0,
) -> Answer:
    """Run it all on this machine: server, core, projector, agent."""
    from apportion.adapters.local import up as tree

    if place.server:
        raise usage(
            "`up` runs its own server, so --server has no meaning here",
            "`apportion serve --server URL`, `project` and `agent` use another one",
        )
    options = tree.UpOptions(
        operator=principal_now(as_),
        node=node,
        pool=pool,
        gpus=gpus if gpus is not None else tree.real_gpus_or(),
        stop_runs=stop_runs,
        ingress=with_ingress,
        beat_ms=_beat(beat),
        http_port=http,
    )
    await tree.up(place.home, options, say)
    return Answer()


def _beat(beat_ms: int) -> int:
    if beat_ms < 100:
        raise usage(f"--beat {beat_ms}ms is too short", "at least 100ms; 5s or 10s is usual")
    return beat_ms


async def demo(
    place: Place,
    days: Annotated[
        int | None, typer.Option("--days", parser=whole(1, 365), metavar="N", help="How many days [default: 7]")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="PATH", help="Play this public trace instead")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the generator and of what goes wrong")] = 1,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="A day of 64 GPUs instead: a service breathes over batch work that is planned ahead")
    ] = False,
) -> Answer:
    """Play a week of 512 GPUs through a real server; print its statement."""
    use_kernels()
    from apportion.adapters.demo import realtime as day
    from apportion.adapters.demo.play import DemoOptions, DemoRefused, play
    from apportion.adapters.demo.report import lines

    options = DemoOptions(home=place.home, days=days, trace=trace, seed=seed, quiet=place.as_json, realtime=realtime)
    try:
        document = await play(options)
    except DemoRefused as refused:
        raise usage(str(refused)) from None
    told = lines(document) + (["", *day.lines(document["realtime"])] if realtime else [])
    return Answer(text="\n".join(told) + "\n", document=document, code=0 if document["ok"] else FAILED)


async def serve(
    place: Place,
    standby: Annotated[
        bool, typer.Option("--standby", help="Follow and check, and take over when the leader is gone")
    ] = False,
) -> Answer:
    """Run the core: read events, decide, write decisions."""
    use_kernels()
    from apportion.adapters import service

    await service.serve(place.home, url=_url(place), standby=standby, ready=lambda line: say(f"ready: {line}"))
    return Answer()


async def project(
    place: Place,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build the file anew from the log first, beside the old one")
    ] = False,
    http: Annotated[
        int | None, typer.Option("--http", parser=whole(0, 65_535), metavar="PORT", help="Answer over HTTP too (0 = a free port)")
    ] = None,
    http_host: Annotated[str, typer.Option("--http-host", metavar="ADDRESS", help="Where to listen")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Ask for this bearer token; needed beyond loopback")
    ] = None,
) -> Answer:
    """Run the projector: the DuckDB projection that answers reads."""
    use_kernels()
    from apportion.adapters.projector.listening import door
    from apportion.adapters.projector.process import serve

    where = door(http, http_host, token_file) if http is not None else None
    if where is None and (token_file is not None or http_host != "127.0.0.1"):
        raise usage("--http-host and --token-file are for --http", "give --http PORT too")
    await serve(
        place.home, url=_url(place), rebuild=rebuild, ready=lambda line: say(f"ready: {line}"), http=where
    )
    return Answer()


async def agent(
    place: Place,
    node: Node = "",
    pool: Annotated[str, typer.Option("--pool", metavar="POOL", help="The pool to join")] = "local",
    gpus: Gpus = None,
    principal: Annotated[
        str, typer.Option("--principal", metavar="NAME", help="Publish as [default: agent-NODE]")
    ] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="PATH", help="Where the node is, widest level first, such as spine1/rack3")
    ] = "",
    spot: Annotated[
        int | None, typer.Option("--place", metavar="N", help="Its place in the order of the pool's topology, for blocks")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="A label the node bears; repeat for more")
    ] = None,
    beat: Annotated[int, lasting("Time between heartbeats", "10s")] = 10_000,
) -> Answer:
    """Run one node's agent: start what is placed, report what happens."""
    import logging

    from apportion.adapters.agent.agent import AgentSettings
    from apportion.adapters.agent.main import serve as serve_agent
    from apportion.adapters.agent.main import tell_ready
    from apportion.adapters.agent.naming import node_name, principal_token
    from apportion.adapters.cli.wishes import labels_of

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    name = node_name(node or os.uname().nodename)
    settings = AgentSettings(
        node=name, pool=pool, principal=principal or principal_token(f"agent-{name}"), beat_ms=_beat(beat),
        domains=tuple(at.split("/")) if at else (), labels=labels_of(label) if label else None,
        place=spot,
    )  # fmt: skip
    await serve_agent(place.home, settings, simulated=gpus, url=_url(place), ready=tell_ready)
    return Answer()


async def ingress(place: Place) -> Answer:
    """Run the service surface: request and reply in any language."""
    import asyncio
    import logging

    from apportion.adapters.ingress.app import serve as serve_ingress

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    await serve_ingress(_url(place), asyncio.Event())
    return Answer()


def _url(place: Place) -> str:
    url = server_url(place)
    if url is None:
        raise no_server(place)
    return url


def bench(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which measurement; without a name they are listed")] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the measurement; repeat for more"),
    ] = None,
    data: Annotated[str, typer.Option("--data", metavar="DIR", help="Data the measurement reads: --set data=DIR")] = "",
) -> Answer:
    """Measure: fold, latency, packing, projector and others."""
    use_kernels()
    import importlib
    import inspect
    import pkgutil

    from apportion.adapters import bench as measurements

    files = (Path(folder) / f"{module.name}.py" for folder in measurements.__path__ for module in pkgutil.iter_modules([folder]))
    known = sorted(file.stem for file in files if file.is_file() and "\ndef run(" in file.read_text(encoding="utf-8"))
    if not name:
        modules = {one: importlib.import_module(f"{measurements.__name__}.{one}") for one in known}
        lines = [f"  {one}{_signature(module)}: {_first_line(module)}" for one, module in modules.items()]
        return Answer(lines=["measurements (apportion bench NAME --json):", *lines], document={"measurements": known})
    if name not in known:
        raise usage(f"there is no measurement {name!r}", f"there are {', '.join(known) or 'none'}")
    module = importlib.import_module(f"{measurements.__name__}.{name}")
    options = dict(_option(text) for text in option or []) | ({"data": data} if data else {})
    parameters = inspect.signature(module.run).parameters
    for key, value in options.items():
        if key not in parameters:
            raise usage(f"measurement {name} has no option {key!r}", f"it takes {name}{_signature(module)}")
        default = parameters[key].default
        if default is not None and type(value) is not type(default):
            asked = f"{type(default).__name__}, such as {key}={default}"
            raise usage(f"{key}={value} is no value for this option of {name}", f"it takes {asked}")
    result: dict[str, Any] = module.run(**options)  # in no thread: there an interrupt would wait until all is measured
    tables = {key: value for key, value in result.items() if isinstance(value, list) and value and isinstance(value[0], dict)}
    told = {key: value for key, value in result.items() if key not in tables}
    lines = [f"{key}: {value:,}" if isinstance(value, int) else f"{key}: {value}" for key, value in told.items()]
    sections = [Section(rows, list(rows[0]), key=key, raw=True) for key, rows in tables.items()]
    return Answer(sections, lines, document=result)


def _signature(module: Any) -> str:
    """Return the options of a measurement with their defaults: ``(days=2, rounds=3)``."""
    import inspect

    parameters = inspect.signature(module.run).parameters.values()
    return f"({', '.join(f'{one.name}={one.default}' for one in parameters)})"


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
