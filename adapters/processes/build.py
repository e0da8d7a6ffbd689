"""Which build of the kernels this is, and where their machine code is kept.

Numba's cache does not notice every change a kernel depends on, and a stale kernel is a silent divergence between two machines.
So the cache's directory carries the build id: a hash of the sources of all kernels, of the units that are constants
in them, and of the versions that compile them.
Called by our own processes at their start, before numba is imported; never by library code (``client``), whose process
belongs to somebody else. An operator's own NUMBA_CACHE_DIR is left alone.
"""

from __future__ import annotations

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

CORE = Path(__file__).resolve().parents[2] / "core"
KERNELS = CORE / "kernels"


def build_id() -> str:
    """Return 16 hex digits over the sources of kernels and units, and the versions of numba, llvmlite and numpy."""
    digest = hashlib.sha256()
    for path in (*_sources(KERNELS, "**/*.py"), *_sources(KERNELS.parent, "units.py")):
        digest.update(str(path.relative_to(KERNELS.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(f"{package}=={version(package)}\0".encode())
    return digest.hexdigest()[:16]


def core_id() -> str:
    """Return 16 hex digits over all sources of the core: equal ids decide equally."""
    digest = hashlib.sha256()
    for path in _sources(CORE, "**/*.py"):
        digest.update(str(path.relative_to(CORE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources(folder: Path, pattern: str) -> list[Path]:
    """Return the files meant, in order. An id over nothing would be equal for all builds, so none is an error."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileNotFoundError(f"{folder} holds no sources: this module was moved, or the installation is not whole")
    return found


def keep_kernels_apart() -> None:
    """Point numba's cache at this build's own directory, for this process and its children."""
    if "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(kernels_directory())


def kernels_directory() -> Path:
    """Return where the processes of this build keep machine code."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return Path(named)
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "apportion"
    return root / f"kernels-{build_id()}"


def is_kept(kernel: str) -> bool:
    """Tell whether machine code of a file of kernels is kept for this build; True where nobody said where it would be."""
    root = os.environ.get("NUMBA_CACHE_DIR")
    return not root or any(Path(root).glob(f"*/{kernel}.*.nbi"))
