"""The core at a record of the past: kept as a snapshot, or made again from the two logs.

::

    snapshots (kept bytes) ──▶ recalling (where to start from) ──▶ replaying (trusts the stored decisions) ──▶ a core
                                                                      ├──▶ driving (record by record, batch by batch)
                                                                      └──▶ trusting (an archive, column by column: for months)
    verifying (derives them again) ──▶ driving ──▶ differences (where two cycles part)

Whoever looks back starts here: ``seen`` and ``explaining`` tell of that core, ``proving`` of the way to it, ``archiving`` goes on
from it and keeps what follows. Nothing here writes a log, and only ``snapshots`` writes at all.
"""
