"""Somebody at a terminal: runs the program's commands against one installation, and waits for what they lead to."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apportion.adapters.cli.main import run

PATIENCE_S = 60.0
PROGRAM = [sys.executable, "-m", "apportion.adapters.cli.main"]


class Done(NamedTuple):
    """One command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class User:
    """Somebody at a terminal with this directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "APPORTION_DIR": str(directory),
            "APPORTION_PRINCIPAL": "ana",
            "COLUMNS": "120",
        }
        self.environment.pop("APPORTION_SERVER", None)

    def start(self, line: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PROGRAM, *line.split()],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            **options,
        )

    def run(self, line: str, *more: str, code: int | None = 0, columns: int = 120) -> Done:
        """Run ``apportion <line> <more>`` in this process; the exit code must be ``code`` (None: any)."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.directory)
            patch.delenv("APPORTION_SERVER", raising=False)
            for name, value in {**self.environment, "COLUMNS": str(columns)}.items():
                patch.setenv(name, value)
            ended = run([*line.split(), *more])
        done = Done(ended, out.getvalue(), err.getvalue())
        assert code is None or done.code == code, f"{line} {more}: exit {done.code}\n{done.out}\n{done.err}"
        return done

    def run_process(self, line: str, *more: str, code: int = 0) -> Done:
        """Run ``apportion <line> <more>`` as a process of its own."""
        ended = subprocess.run(
            [*PROGRAM, *line.split(), *more],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=self.directory,
            check=False,
        )
        done = Done(ended.returncode, ended.stdout, ended.stderr)
        assert "Traceback" not in done.err, done.err
        assert done.code == code, f"{line} {more}: exit {done.code}\n{done.out}\n{done.err}"
        return done

    def until(self, what: str, holds: Callable[[], Any]) -> Any:
        """Wait until ``holds`` returns something true, for at most PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = holds()
            if found:
                return found
            time.sleep(0.2)
        raise AssertionError(f"never happened: {what}")

    def state(self, job: str) -> str:
        return str(self.run(f"job {job} --json").json["workload"]["state"])

    def left(self, budget: str) -> int:
        rows = self.run("budget list --json").json["rows"]
        return int(next(row["left_gpu_us"] or 0 for row in rows if row["budget"] == budget))
