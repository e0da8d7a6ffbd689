"""A log is folded by the same machine code in each of its forms: a second one would be compiled for nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from apportion.core.kernels import reports

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDED = """
from tests.compiled import past
from apportion.core.kernels import reports, stretch
past()
print(len(reports.fold.signatures), len(stretch.fold.signatures))
"""


@pytest.mark.timeout(900)  # whoever comes first compiles them
@pytest.mark.skipif(not reports.COMPILED, reason="Numba is told not to compile")
def test_records_text_and_columns_are_of_the_same_types() -> None:
    """Numba compiles anew for an array that may not be written, where it was given one that may."""
    done = subprocess.run([sys.executable, "-c", FOLDED], cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)

    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split() == ["1", "1"]
