"""The ids of a build are over the sources that they speak of."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.adapters.processes import build
from apportion.core import kernels


def test_the_ids_are_over_the_sources_that_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Path(kernels.__file__).resolve().parent == build.KERNELS

    ids = build.build_id(), build.core_id()
    copy = tmp_path / "core"
    for path in build.CORE.rglob("*.py"):
        (copy / path.relative_to(build.CORE)).parent.mkdir(parents=True, exist_ok=True)
        (copy / path.relative_to(build.CORE)).write_bytes(path.read_bytes())
    monkeypatch.setattr(build, "CORE", copy)
    monkeypatch.setattr(build, "KERNELS", copy / "kernels")
    assert (build.build_id(), build.core_id()) == ids
    for changed in ("kernels/pack.py", "kernels/serve/order.py", "units.py"):
        with (copy / changed).open("a") as file:
            file.write("# another\n")
        assert build.build_id() != ids[0]
        assert build.core_id() != ids[1]
        ids = build.build_id(), build.core_id()


def test_an_id_over_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "KERNELS", tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no sources"):
        build.build_id()


def test_machine_code_is_kept_once_a_file_of_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    assert build.is_kept("stretch"), "nobody knows: so nobody is told to wait"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels_1").mkdir()
    (tmp_path / "kernels_1" / "stored.trust-9.py311.nbi").touch()
    assert not build.is_kept("stretch")
    (tmp_path / "kernels_1" / "stretch.fold-9.py311.nbi").touch()
    assert build.is_kept("stretch")
