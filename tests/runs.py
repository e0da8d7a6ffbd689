"""Runs of agents that a test leaves behind: their supervisors and commands are ended, so that no process outlives a test."""

from __future__ import annotations

import os
import signal
import time

from apportion.adapters.agent.rundir import RunDir
from apportion.adapters.processes.home import Home


def end_all_runs(home: Home) -> None:
    """Stop every supervised run under a home."""
    folders = [
        RunDir(path.parent, path.name.rpartition("#")[0], int(path.name.rpartition("#")[2]))
        for path in home.agents.glob("*/*#*")
    ]
    for folder in folders:
        folder.order_stop(0)
        started = folder.started()
        if started is not None and started.alive:
            os.kill(started.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(folder.supervised() for folder in folders) and time.monotonic() < deadline:
        time.sleep(0.02)
