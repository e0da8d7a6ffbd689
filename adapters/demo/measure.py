"""Memory and processor time of a process, as the system tells them; 0 where it does not. Reads ``/proc``, decides nothing.

For the report only: no number from here may enter an event.
"""

from __future__ import annotations

import os
from pathlib import Path


def peak_rss_mb(pid: int) -> int:
    """Return the peak memory of a process, 0 where the system does not tell."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return 0


def cpu_s(pid: int) -> float:
    """Return the processor time of a process in seconds, 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 1)
    except (OSError, IndexError, ValueError):
        return 0.0
