"""The scheduler process: reader -> ``Core`` -> fenced writer. A standby is the same program with its writer closed.

``scheduler`` (the loop), ``recovery`` (where to start, and whether the log is still the one), ``ticking`` (when the leader
writes a ``clock.tick``), ``telling`` (who hears of a cycle), ``ports`` (what it needs of the world), ``process``
(``serve``: the command).

Decisions
    * The fence is the only safety. Leadership decides who *tries*: two leaders that read the same log write the same
      bytes, and one that does not is stopped by the expected last sequence. No lease, no clock.
    * A tick is an event like any other: published, then read back from the log at its place, and only then decided. So a
      cycle covers exactly the records before its tick, on every reader.
    * Commit before act: callbacks see a batch only when DECISIONS holds it.
"""

from apportion.adapters.service.process import serve
from apportion.adapters.service.scheduler import SchedulerService, Settings

__all__ = ["SchedulerService", "Settings", "serve"]
