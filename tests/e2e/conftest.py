"""A cluster for the tests of the command line: a real ``apportion up`` in a directory of its own, real processes.

One cluster serves the tests of one file, and each test stands alone: it uses jobs and budgets of its own, and asks for
``worked`` where there must be something to look at.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.user import PATIENCE_S, PROGRAM, User


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Start a cluster of eight simulated GPUs; stop it, and its runs, at the end."""
    directory = tmp_path_factory.mktemp("installation")
    ana = User(directory)
    said = directory / "up.err"
    with said.open("w") as err:
        up = subprocess.Popen(
            [*PROGRAM, "up", "--gpus", "8", "--node", "n1", "--beat", "500ms", "--stop-runs"],
            env=ana.environment,
            stdout=err,
            stderr=err,
            cwd=directory,
        )
    try:
        ana.until("ready", lambda: "ready: node n1" in said.read_text() or up.poll() is not None)
        assert up.poll() is None, said.read_text()
        ana.until("the example tree can be read", lambda: "lab/llm/olmo" in ana.run("budget list --json", code=None).out)
        yield ana
    finally:
        up.send_signal(signal.SIGINT)
        try:
            code = up.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            up.kill()
            raise AssertionError(f"`up --stop-runs` did not end within {PATIENCE_S} s:\n{said.read_text()}") from None
        told = said.read_text()
        assert code == 0, told
        assert "Traceback" not in told


@pytest.fixture(scope="module")
def worked(user: User) -> User:
    """Return the user of a cluster that has worked: one job succeeded, one failed, one was cancelled."""
    user.run("submit --budget lab/llm/olmo --gpus 2 --min-runtime 1m --name good --wait -- sleep 0.3")
    user.run("submit --budget lab/llm/eval --name bad --wait -- false", code=1)
    user.run("submit --budget lab/robotics --name unwanted -- sleep 1000")
    user.until("running", lambda: user.state("unwanted") == "running")
    user.run("cancel unwanted")
    user.until("over", lambda: user.state("unwanted") == "cancelled")
    return user
