"""A job of the outside world: what somebody wants to run, before anybody decided anything.

Pure data: made by traces and generators, played by the simulation; the core never sees it.
"""

from __future__ import annotations

from typing import NamedTuple


class Job(NamedTuple):
    """One job: submitted at this instant (from the start of the play), this long on so many GPUs, for this program."""

    job_id: str
    submit_ms: int
    duration_ms: int
    gpus: int
    program: str
