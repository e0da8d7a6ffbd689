"""The placement bench: it reads the published layout, makes the published stream, and compares with what was published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from apportion.adapters.bench import packing as bench
from apportion.adapters.bench.worlds.packing import arrivals, openb
from apportion.adapters.bench.worlds.packing.play import PACKINGS, play
from apportion.adapters.cli.main import run
from apportion.core.kernels import fragments

POD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
TEN_NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n-{number:02d},{96_000 if number < 5 else 32_000},262144,{8 if number < 5 else 2},{'G2' if number < 5 else 'T4'}\n"
    for number in range(10)
)
COMMON = ["8000,1024,1,1000,", "4000,1024,1,500,", "6000,1024,0,0,"]
RARE = ["90000,1024,8,1000,G2", "16000,1024,2,1000,T4|G2"]


def folder(path: Path, **traces: list[str]) -> Path:
    """Write a folder as it is published."""
    (path / "csv").mkdir()
    (path / "expected_results").mkdir()
    (path / openb.NODES).write_text(TEN_NODES)
    for name, pods in traces.items():
        rows = "".join(f"p-{number:04d},{pod}\n" for number, pod in enumerate(pods))
        (path / "csv" / f"{openb.PODS}{name}.csv").write_text(POD + rows)
    results = [f"{openb.PODS}{name},{policy},1.3,{seed},50,{70 + seed - 42}.0\n" for name in traces
               for policy in ("05-BestFit", "06-FGD") for seed in (42, 43)]  # fmt: skip
    (path / openb.RESULTS).write_text("workload,sc_policy,tune,seed,total_gpus,130\n" + "".join(results))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return folder(tmp_path, small=COMMON * 6 + RARE, big=(COMMON * 20 + RARE) * 2)


def read(data: Path, name: str) -> tuple[openb.Trace, openb.Nodes]:
    nodes = openb.read_nodes(data)
    return openb.read_trace(data, name, nodes), nodes


def test_nodes_and_pods_are_read_as_columns(data: Path) -> None:
    trace, nodes = read(data, "small")

    assert nodes.capacity_milli == 50_000
    assert list(nodes.first[:7]) == [0, 8, 16, 24, 32, 40, 42]
    assert nodes.bits == {"G2": 1, "T4": 2}
    asked = trace.kinds[trace.pods[-2]]
    assert list(asked) == [0, 8, 1_000, 90_000, 1_024, 1]
    assert trace.kinds[trace.pods[-1], fragments.MODELS] == 3
    assert trace.kinds[trace.pods[0], fragments.MODELS] == openb.ANY_MODEL


def test_the_mix_is_what_comes_most_until_it_is_95_per_cent(data: Path) -> None:
    trace, _ = read(data, "small")

    assert [int(row[fragments.WEIGHT]) for row in trace.mix] == [6, 6, 6, 1], "19 of 20 pods, equals by falling CPU"
    assert [int(row[fragments.CPU_MILLI]) for row in trace.mix] == [8_000, 6_000, 4_000, 90_000]


def test_copies_are_appended_up_to_130_per_cent_and_others_go(data: Path) -> None:
    for name, more in (("small", True), ("big", False)):
        trace, nodes = read(data, name)
        drawn = arrivals.draw(trace, nodes, 42)
        asked_milli = sum(trace.gpu_milli(kind) for kind in drawn.kinds)

        assert (len(drawn.kinds) > len(trace.pods)) == more
        assert 65_000 - 8_000 <= asked_milli <= 65_000 + 7_000, "a part of the last one may be beyond, as published"
        assert sorted(drawn.order.tolist()) == list(range(10))


def test_a_seed_is_a_stream(data: Path) -> None:
    trace, nodes = read(data, "small")
    one, same, other = (arrivals.draw(trace, nodes, seed) for seed in (42, 42, 43))

    assert one.kinds == same.kinds
    assert np.array_equal(one.order, same.order)
    assert one.kinds != other.kinds
    assert not np.array_equal(one.order, other.order)


@pytest.mark.parametrize("packing", list(PACKINGS))
def test_what_is_placed_is_within_what_nodes_have(data: Path, packing: str) -> None:
    trace, nodes = read(data, "small")
    drawn = arrivals.draw(trace, nodes, 42)

    played = play(packing, trace, nodes, drawn)

    placed = [(kind, node) for kind, node in zip(drawn.kinds, played.places, strict=True) if node >= 0]
    assert played.allocated_milli == sum(trace.gpu_milli(kind) for kind, _ in placed) <= nodes.capacity_milli
    for number in range(10):
        mine = [trace.kinds[kind] for kind, node in placed if node == number]
        assert sum(int(asked[fragments.CPU_MILLI]) for asked in mine) <= nodes.cpu_milli[number]
        assert sum(int(asked[fragments.GPUS] * asked[fragments.MILLI]) for asked in mine) <= nodes.gpus[number] * 1_000
        assert all(int(asked[fragments.MODELS]) & int(nodes.models[number]) for asked in mine if asked[fragments.GPUS])


def test_each_row_stands_against_what_was_published(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "packing", "--data", str(data), "--json", "--set", "seeds=2", "--set", "traces=small"]) == 0

    found = json.loads(capsys.readouterr().out)
    (row,) = found["traces"]
    assert found["seeds"] == [42, 43]
    assert row["fgd"]["published"] == row["best_fit"]["published"] == 70.5
    assert found["fgd_worst_abs_gap_points"] == pytest.approx(abs(sum(row["fgd"]["per_seed"]) / 2 - 70.5), abs=0.002)
    assert row["ours_minus_published_fgd"] == found["ours_minus_published_fgd_mean_points"]
    assert row["ours_minus_published_fgd"] == pytest.approx(row["balanced"]["mean"] - 70.5, abs=0.002)


def test_a_trace_nobody_published_has_no_gap(data: Path) -> None:
    (data / openb.RESULTS).unlink()

    found = bench.run(data=str(data), seeds=1, traces="small")

    assert found["fgd_worst_abs_gap_points"] is None
    assert found["ours_minus_published_fgd_mean_points"] is None
    assert found["traces"][0]["balanced"]["mean"] > 50


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda path: (path / openb.NODES).unlink(), "openb_node_list_gpu_node.csv: no such file"),
        (lambda path: (path / openb.NODES).write_text("sn,gpu\nn,1\n"), "line 2: not a row as published"),
        (lambda path: [one.unlink() for one in (path / "csv").glob("*pod*")], "no csv/openb_pod_list_*.csv there"),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_as_published_is_refused_with_what_is_wrong(
    data: Path, capsys: pytest.CaptureFixture[str], broken: Callable[[Path], object], said: str
) -> None:
    broken(data)

    assert run(["bench", "packing", "--data", str(data)]) == 1

    assert said in capsys.readouterr().err


def test_without_a_folder_it_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(["bench", "packing"]) == 1

    assert "--data DIR" in capsys.readouterr().err
