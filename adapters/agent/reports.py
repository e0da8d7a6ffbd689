"""What an agent reports about its runs, by name, into its outbox.

A pure mapping from happenings to events, plus the note in the run's folder that the log has them. Reports tell what was
seen; what an end means is the core's to say.
"""

from __future__ import annotations

import time
from pathlib import Path

from apportion.adapters.agent.orders import run_key
from apportion.adapters.agent.outbox import Outbox
from apportion.adapters.agent.rundir import Exit, RunDir, RunSpec
from apportion.adapters.agent.runs import Happening
from apportion.core.events import RunCheckpointed, RunFinished, RunLost, RunStarted

MAX_DETAIL = 1_000


def wall_ms() -> int:
    """Return this machine's time, a claim that nothing depends on."""
    return int(time.time() * 1_000)


def end_of(spec: RunSpec, exit_: Exit) -> RunFinished | RunLost:
    """Return the report of an end.

    After SIGTERM was sent, exit code 0 still is success, and anything else is a stop: a command that is interrupted
    cannot be blamed for its exit code. Before, 0 is success and anything else a failure.
    """
    if exit_.lost:
        return RunLost(workload=spec.workload, run=spec.run, node=spec.node, detail=exit_.lost[:MAX_DETAIL])
    detail = exit_.refused or exit_.detail
    if exit_.refused:
        outcome = "refused"
    elif exit_.exit_code == 0 and not exit_.killed:
        outcome = "succeeded"
    elif exit_.signalled or exit_.killed:
        outcome = "stopped"
        detail = detail or ("SIGKILL at the end of its grace" if exit_.killed else "")
    else:
        outcome = "failed"
    return RunFinished(
        workload=spec.workload,
        run=spec.run,
        node=spec.node,
        outcome=outcome,  # type: ignore[arg-type]  # one of the four words
        exit_code=exit_.exit_code,
        detail=detail[:MAX_DETAIL],
    )


class Reports:
    """Puts reports into the outbox, and remembers with the run which of them arrived."""

    def __init__(self, outbox: Outbox, agent_dir: Path) -> None:
        self._outbox = outbox
        self._dir = agent_dir

    def tell(self, spec: RunSpec, happening: Happening) -> None:
        """Report one happening; telling it again is harmless."""
        key, at_ms = happening.key, wall_ms()
        if happening.what == "started":
            started = RunStarted(workload=spec.workload, run=spec.run, node=spec.node, pid=happening.number)
            self._outbox.put(f"started {key}", started, at_ms=at_ms)
        elif happening.what == "progressed":
            safe = RunCheckpointed(workload=spec.workload, run=spec.run, progress_ms=happening.number)
            self._outbox.put(f"progress {key} {happening.number}", safe, at_ms=at_ms)
        elif happening.exit is not None:
            self._outbox.put(f"ended {key}", end_of(spec, happening.exit), at_ms=at_ms)

    def arrived(self, name: str) -> None:
        """Note that the log has the report called ``name``."""
        what, _, rest = name.partition(" ")
        key, _, number = rest.partition(" ")
        workload, _, run = key.rpartition("#")
        if what not in ("started", "progress", "ended") or not run.isdigit():
            return
        folder = RunDir(self._dir, workload, int(run))
        if not folder.exists:
            return
        reported = folder.reported()
        if what == "started":
            reported.started = True
        elif what == "progress":
            reported.progress_ms = max(reported.progress_ms, int(number))
        else:
            reported.ended = True
        folder.save_reported(reported)

    def end_arrived(self, workload: str, run: int) -> bool:
        """Tell whether the log has the end of this run."""
        return RunDir(self._dir, workload, run).reported().ended

    def pointless(self, workload: str, run: int) -> None:
        """The core has closed the run: what was not sent about it would only be refused as stale."""
        key = run_key(workload, run)
        for name in self._outbox.names():
            if name.split(" ")[1:2] == [key]:
                self._outbox.drop(name)
