"""What is shipped: the wheel holds the code and nothing else, and works in an environment that never saw this tree.

Built without isolation and without a network. A build can end well with an empty wheel; so the content is compared with
the tree, file by file, both for the wheel built here and for the one built from the source distribution.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "adapters", "projections")
NOT_SHIPPED = {"core/ruff.toml"}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def tree() -> set[str]:
    """Return the files of the three packages that are not ignored, as they must stand in the wheel."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGES, cwd=ROOT)
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    return {f"apportion/{name}" for name in names - NOT_SHIPPED}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a source distribution, and the wheel from it, as an index would get them."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: what belongs to the tree cannot be told from what was made in it")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder, PIP_NO_INDEX="1")
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    shipped = names - metadata

    assert shipped == tree(), "missing or surplus: " + ", ".join(sorted(shipped ^ tree())[:20])
    assert {name.rsplit(".", 1)[-1] for name in shipped} <= {"py", "sql", "typed", "html", "css", "js", "svg"}
    assert {f"apportion/{name}/py.typed" for name in PACKAGES} <= shipped
    assert any(name.endswith(".sql") for name in shipped)
    assert "apportion/__init__.py" not in shipped, "apportion is a namespace: other packages may add to it"
    assert any(name.endswith("entry_points.txt") for name in metadata)
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def test_a_wheel_built_straight_from_the_tree_is_the_same(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (direct,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(direct) as other:
        assert set(ours.namelist()) == set(other.namelist())


def test_the_source_distribution_holds_what_is_needed_to_test_it(built: Path) -> None:
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "core/events/register.py",
        "tests/test_tidy.py",
        "constraints.txt",
        "Makefile",
        ".ci/run",
        "deploy/nats.conf",
    } <= names
    assert not [name for name in names if ".venv/" in name or ".apportion/" in name or "__pycache__" in name]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into a new environment, and lend it the dependencies of this one.

    A path file adds our site-packages, but not what its own path files add: our tree is out of reach.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.EnvBuilder(symlinks=True).create(folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder.parent)
    (own,) = (folder / "lib").glob("python*/site-packages")
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_installed_program_answers(installed: Path, tmp_path: Path) -> None:
    shown = run(installed / "bin" / "apportion", "--help", cwd=tmp_path)

    assert "submit" in shown
    assert "demo" in shown


def test_the_installed_core_works_elsewhere(installed: Path, tmp_path: Path) -> None:
    script = (
        "import apportion.core.engine as engine, apportion.projections, apportion.adapters.client\n"
        "core = engine.Core.new()\n"
        "print(engine.__file__)\n"
        "print(core.digest())\n"
        "assert engine.Core.from_snapshot(core.snapshot()).digest() == core.digest()\n"
    )
    printed = run(installed / "bin" / "python", "-c", script, cwd=tmp_path, NUMBA_CACHE_DIR=str(tmp_path)).splitlines()
    here = run(sys.executable, "-c", script, cwd=tmp_path).splitlines()

    assert Path(printed[0]).is_relative_to(installed), "another copy was imported"
    assert not Path(here[0]).is_relative_to(installed)
    assert printed[1] == here[1], "the same code gives the same state"


def test_the_installed_version_is_that_of_the_project(installed: Path, tmp_path: Path) -> None:
    script = "import importlib.metadata as m; print(m.version('apportion'))"
    version = run(installed / "bin" / "python", "-c", script, cwd=tmp_path).strip()

    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
