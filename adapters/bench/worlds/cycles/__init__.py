"""The bench of the cycle: a large cluster with a long queue, built from events alone, and the moments at which a cycle is measured.

::

    setting (cluster, tree, mix of jobs) ──▶ world (events into ``Core``, ticks, agents' answers) ──▶ ``bench.cycle`` (what it took)
                                               └──▶ moments (one phase of a cycle by itself) ─────────┘

Nothing here makes state by hand: every workload was submitted, admitted and queued, every run placed by a cycle and reported
started. A run ends when the world says so.
"""
