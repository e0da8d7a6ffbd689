"""The history of other schedulers, read as they wrote it: `sacct` dumps, the Standard Workload Format, any CSV.

A reader turns every line of a file into one of three things: an ``Attempt``, a ``Refusal`` with its reason, or ``Passed``
(a comment, a step of a job that its own line already counts). Nothing is repaired silently and no line is lost:
``attempts + refusals + passed = lines``. Readers are pure functions of the lines; ``projections.imported`` stores what they
return, the command line tells it.

Decisions
---------
*Recorded, not decided again.* Our core did not decide those starts, so they are not events or decisions of one of our logs:
a log of them would need pools, budgets and members that nobody ever set, and ``verify`` of it would prove nothing. They are
facts of a file of their own (``imported.duckdb``) whose views answer in the same units, GPU-microseconds in integers. What
*can* be decided again is what was asked for: ``--jobs FILE`` writes submissions, demands and budgets as a trace, which
``apportion compare --trace`` plays through the real core.

*One attempt is cluster + job number + submission + start.* Slurm uses job numbers again after a restart, writes one row per
attempt when asked for duplicates (``-D``), and the same row again in the next dump. Of two rows with one key the one that knows
more wins (``projections/imported.py``), whatever their order, so dumps may overlap and be imported in any pieces.
"""
