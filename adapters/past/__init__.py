"""The core at a record of the past: kept as a snapshot, or made again from the two logs.

::

    snapshots (kept bytes) ──▶ recalling (where to start from) ──▶ replaying (derive or trust, record by record) ──▶ a core
                                                                      └──▶ trusting (an archive, column by column: for months)

Whoever looks back starts here: ``seen`` and ``explaining`` tell of that core, ``proving`` of the way to it, ``archiving`` goes on
from it and keeps what follows. Nothing here writes a log, and only ``snapshots`` writes at all.
"""
