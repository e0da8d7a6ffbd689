"""Kernels are compiled once, by a process that ends, before a demo or a cluster on one machine starts the others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.bus.server import EmbeddedServer
from apportion.adapters.local.up import UpOptions, up
from apportion.adapters.processes import compiling
from apportion.adapters.processes.compiling import NotCompiled, compile_kernels, compiled_once, is_needed
from apportion.adapters.processes.home import Home

COVERED = """
import sys
from numba.core.dispatcher import Dispatcher
from apportion.adapters.processes.build import keep_kernels_apart
keep_kernels_apart()
from apportion.adapters.demo.rehearsal import rehearse
from apportion.adapters.demo.setting import DemoOptions, story
from apportion.adapters.processes.home import Home
from apportion.adapters.simulation.driver import Simulation, replay
from apportion.adapters.simulation.world import World

def ready():
    modules = [module for name, module in sys.modules.items() if name.startswith("apportion.core.kernels")]
    kernels = [one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)]
    return {(one.py_func.__module__, one.py_func.__name__, str(types)) for one in kernels for types in one.signatures}

rehearse(plans=True)
rehearsed = ready()
for realtime, hours in ((False, 30), (True, 18)):
    jobs, options = story(DemoOptions(Home.of(), seed=7, length_ms=hours * 3_600_000, realtime=realtime))
    played = Simulation(World(jobs, options), every_interval=True)
    replay(played.run(options.start_ms + options.length_ms))
print(sorted(f"{module}.{name}" for module, name, _types in ready() - rehearsed))
"""


def test_a_demo_calls_no_kernel_that_was_not_rehearsed() -> None:
    done = subprocess.run([sys.executable, "-c", COVERED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of machine code that is empty, and a compiler that only says so."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    told = (
        "from apportion.adapters.processes.compiling import compiled_once\n"
        "with compiled_once(plans=False) as needed:\n"
        "    if needed: open(__import__('os').environ['NUMBA_CACHE_DIR'] + '/made', 'x').close()"
    )
    monkeypatch.setattr(compiling, "COMPILER", ("-c", told))
    return tmp_path / "kernels"


def test_it_is_done_once_for_a_build(cold: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_needed()

    async def twice_at_once() -> list[float]:
        return await asyncio.gather(compile_kernels(), compile_kernels())  # a second that made it too would find the file

    assert all(seconds > 0 for seconds in run_async(twice_at_once()))
    assert (cold / "made").exists()
    assert not is_needed()
    assert is_needed(plans=True), "those of the rolling plan are others"
    monkeypatch.setattr(compiling, "build_id", lambda: "another")
    assert is_needed(), "of another build nothing is known"


def test_what_failed_is_told_and_tried_again(cold: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "COMPILER", ("-c", "raise SystemExit('no space left')"))
    with pytest.raises(NotCompiled, match="exit code 1\\):\nno space left"):
        run_async(compile_kernels())
    with pytest.raises(ZeroDivisionError), compiled_once(plans=False):
        raise ZeroDivisionError
    assert is_needed()


def test_who_gives_up_ends_the_compiler(cold: Path, tmp_path: Path, run_async: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    text = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(100)"
    monkeypatch.setattr(compiling, "COMPILER", ("-c", text))
    said: list[str] = []

    async def stopped() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(up(Home.of(tmp_path / "home"), UpOptions(operator="ada", node="n1"), said.append, stop))
        while not (pid.exists() and pid.read_text()):
            await asyncio.sleep(0.02)
        stop.set()
        await asyncio.wait_for(task, 30)

    run_async(stopped())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert [line.split()[:2] for line in said] == [["kernels", "compiling,"], ["kernels", "not"]]
    assert EmbeddedServer.running(Home.of(tmp_path / "home")) is None


@pytest.mark.slow
def test_no_process_of_a_demo_holds_a_compiler(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "apportion.adapters.cli.main", "demo", "--days", "1", "--dir", str(tmp_path / "demo")]
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert "compiling kernels, once per version: " in done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("memory "))
    parts = dict(part.split() for part in row.partition("(")[2].rstrip(")").split(", "))
    assert int(parts["play"]) < 450, row
    assert int(parts["verifier"]) < 450, row
