"""One log, read in processes that differ in everything that must not matter: one digest, one chain, equal batch bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from numpy._core import _multiarray_umath as umath

from apportion.core import events as ev
from tests.compiled import without_settings
from tests.core import unseed_log

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 600
pytestmark = pytest.mark.timeout(1_500)  # two of the environments compile all kernels anew
DISPATCHED = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]


def environments(cache: Path) -> dict[str, dict[str, str]]:
    """Return what to set, by name; code that is not optimised needs a cache of its own, for the cache does not ask."""
    found = {
        "default": {},
        "hash seed 1": {"PYTHONHASHSEED": "1"},
        "hash seed 2": {"PYTHONHASHSEED": "2"},
        "no machine code": {"NUMBA_DISABLE_JIT": "1"},
        "code for any processor": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
        "code not optimised": {"NUMBA_OPT": "0", "NUMBA_CACHE_DIR": str(cache)},
    }
    if DISPATCHED:
        found["numpy without vector units"] = {"NPY_DISABLE_CPU_FEATURES": " ".join(DISPATCHED)}
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log, as a file."""
    path = tmp_path_factory.mktemp("unseed") / "log"
    unseed_log.write(path)
    return path


@pytest.fixture(scope="module")
def told(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each environment made of the log; two at a time."""
    wanted = environments(tmp_path_factory.mktemp("numba"))

    def run(settings: dict[str, str]) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.core.unseed_log", str(log)],
            cwd=ROOT, env=without_settings() | settings, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{settings}: {done.stderr[-2_000:]}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(wanted, pool.map(run, wanted.values()), strict=True))


def test_the_log_has_every_kind_of_event(log: Path) -> None:
    records = unseed_log.read(log)
    kinds = {record.subject.split(".", 3)[3] for record in records}

    assert {name for name, _ in ev.EVENTS} <= kinds
    assert len(records) >= unseed_log.RECORDS


def test_all_environments_reach_the_same_state_by_the_same_bytes(told: dict[str, dict[str, Any]]) -> None:
    outcomes = {name: answer["outcome"] for name, answer in told.items()}

    assert len(outcomes) >= 6
    assert outcomes["default"]["cycles"] >= unseed_log.CYCLES
    for name, outcome in outcomes.items():
        assert outcome == outcomes["default"], f"{name} differs"


def test_each_environment_was_in_force(told: dict[str, dict[str, Any]]) -> None:
    """Equal outcomes prove nothing when the processes were equal too."""
    made = {name: answer["surroundings"] for name, answer in told.items()}

    assert made["hash seed 1"]["hash"] != made["hash seed 2"]["hash"]
    assert made["default"]["jit"]
    assert not made["no machine code"]["jit"]
    assert made["code for any processor"]["cpu"] == "generic"
    assert made["code not optimised"]["opt"] != made["default"]["opt"]
    if DISPATCHED:
        assert not set(DISPATCHED) & set(made["numpy without vector units"]["simd"])
