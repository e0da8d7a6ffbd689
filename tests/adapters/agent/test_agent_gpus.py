"""GPUs of a node: NVML's answers as one machine gives them (a stand-in library), their absence, and simulation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.adapters.agent import nvml
from apportion.adapters.agent.gpus import Held, SimulatedGpus

MIB = 1024 * 1024


class Driver:
    """Answers as NVML does for a list of UUIDs; ``lost`` ones raise, ``gone`` ones are not counted any more."""

    class NVMLError(Exception):
        """As pynvml's."""

    def __init__(self, *uuids: str) -> None:
        self.uuids = list(uuids)
        self.lost: set[str] = set()
        self.unmappable: set[str] = set()
        self.percent: dict[str, int] = {}  # 50 unless said

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's names
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - NVML's names
        return self.uuids[index]

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802 - NVML's names
        return self._ask(handle)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802 - NVML's names
        self._ask(handle)
        return SimpleNamespace(total=80_000 * MIB, used=1_000 * MIB)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802 - NVML's names
        self._ask(handle)
        return SimpleNamespace(gpu=self.percent.get(handle, 50))

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802 - NVML's names
        self._ask(handle)
        return 300_500

    def nvmlDeviceGetRemappedRows(self, handle: str) -> tuple[int, int, int, int]:  # noqa: N802 - NVML's names
        self._ask(handle)
        return (1, 0, 0, int(handle in self.unmappable))

    def _ask(self, handle: str) -> str:
        if handle in self.lost:
            raise self.NVMLError("GPU is lost")
        return handle


def test_a_reading_sums_what_answers() -> None:
    gpus = nvml.NvmlGpus(Driver("a", "b", "c"))
    assert (gpus.kind, gpus.count, gpus.memory_mib_each, gpus.ids) == ("nvml", 3, 80_000, ("a", "b", "c"))
    assert gpus.read({}) == ((), 1_500, 3_000, 901, ())
    assert gpus.visible((0, 2)) == "0,2"


def test_a_run_is_idle_when_all_of_its_gpus_say_that_they_compute_nothing() -> None:
    driver = Driver("a", "b", "c", "d")
    gpus = nvml.NvmlGpus(driver)
    sessions = {11: Held(2_000, (0, 1)), 12: Held(1_000, (2,)), 13: Held(500, (3,))}
    driver.percent = {"a": 0, "b": 0, "c": 1, "d": 0}
    assert gpus.read(sessions).idle == (11, 13)
    driver.percent["b"] = 2
    driver.lost = {"d"}
    assert gpus.read(sessions).idle == (), "one works, the other does not answer: neither is proof"


def test_a_gpu_that_is_lost_is_down_and_the_node_keeps_its_size() -> None:
    driver = Driver("a", "b", "c")
    gpus = nvml.NvmlGpus(driver)
    driver.lost = {"b"}
    driver.unmappable = {"c"}
    assert gpus.read({}).gpus_down == (1, 2)
    assert gpus.count == 3


def test_a_gpu_keeps_its_index_when_one_before_it_fell_off_the_bus() -> None:
    driver = Driver("a", "b", "c")
    known = nvml.NvmlGpus(driver).ids
    driver.uuids = ["b", "c"]  # NVML counts anew
    gpus = nvml.NvmlGpus(driver, known)
    assert gpus.read({}).gpus_down == (0,)
    assert gpus.visible((1, 2)) == "0,1", "the indexes the workload must use today"
    assert gpus.visible((0,)) == "a", "not a neighbour's"


@given(st.lists(st.integers(0, 9), unique=True, max_size=8), st.lists(st.integers(0, 9), unique=True, max_size=8))
def test_known_gpus_keep_their_places_whatever_is_present(known: list[int], present: list[int]) -> None:
    before, now = tuple(map(str, known)), tuple(map(str, present))
    after = nvml.merge_ids(before, now)
    assert len(set(after)) == len(after)
    assert len(after) >= len(before), "a node never shrinks by itself"
    assert set(now) <= set(after)
    for index, uuid in enumerate(before):
        assert after[index] == uuid or uuid not in now


def test_without_a_gpu_it_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(nvml.NoGpus, match=r"apportion\[gpu\].*--gpus N"):
        nvml.find()
    empty: Any = Driver()
    empty.nvmlInit = lambda: None
    monkeypatch.setitem(sys.modules, "pynvml", empty)
    with pytest.raises(nvml.NoGpus, match="finds no GPU"):
        nvml.find()
    broken: Any = Driver("a")

    def fail() -> None:
        raise Driver.NVMLError("Driver Not Loaded")

    broken.nvmlInit = fail
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    with pytest.raises(nvml.NoGpus, match=r"Driver Not Loaded.*nvidia-smi"):
        nvml.find()


def test_simulated_gpus_are_as_busy_as_their_processes() -> None:
    gpus = SimulatedGpus(4)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    idle = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        sessions = {busy.pid: Held(2_000, (0, 1)), idle.pid: Held(2_000, (2, 3))}
        assert os.getsid(busy.pid) == busy.pid
        gpus.read(sessions)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.1)
            reading = gpus.read(sessions)
            assert reading.busy_milli <= 2_000, "only one of them computes"
            if reading.busy_milli > 100:
                break
        else:
            pytest.fail("a computing process showed as idle")
        assert reading.idle == (idle.pid,)
        assert gpus.read({}).busy_milli == 0
    finally:
        busy.kill()
        idle.kill()
        busy.wait()
        idle.wait()
