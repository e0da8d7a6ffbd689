"""A verb ends within seconds of an interrupt, with 130, whatever it is at: a real signal to a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apportion.adapters.cli.failure import INTERRUPTED

BUSY = {
    "waits": "await asyncio.sleep(60)",
    "works": "work()",  # on the loop, as a replay of an archive does
    "works in a thread": "await asyncio.to_thread(work)",  # as a replay through a log that was cut does
}

PROGRAM = """
import asyncio, os, sys, time
from pathlib import Path
import typer
from apportion.adapters.cli import main, verbs

def begin():
    print("begun", flush=True)

def work():
    begin()
    for _ in range(600):
        time.sleep(0.1)

async def busy(place: verbs.Place) -> verbs.Answer:
    try:
        {at}
    finally:
        await asyncio.sleep(0)
        Path(os.environ["CLOSED"]).touch()  # what is open is closed

main.app.command("busy")(verbs.verb(busy))
sys.argv[1:] = ["busy"]
sys.exit(main.main())
"""


@pytest.mark.parametrize("at", BUSY)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_verb_ends_when_it_is_told_to(at: str, number: signal.Signals, tmp_path: Path) -> None:
    line = BUSY[at] if "work" in BUSY[at] else f"begin(); {BUSY[at]}"
    code, env = [sys.executable, "-c", PROGRAM.replace("{at}", line)], os.environ | {"CLOSED": str(tmp_path / "closed")}
    with subprocess.Popen(
        code, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as a command in the foreground begins
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        _out, err = process.communicate(timeout=20)

    assert process.returncode == INTERRUPTED, err.decode()
    assert err.decode().splitlines() == ["error: interrupted"]
    assert (tmp_path / "closed").exists()
