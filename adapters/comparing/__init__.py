"""The same work under several policies: one table, and two pictures of it.

::

    story (jobs and world, equal for all) ──▶ playing (a process per policy: world + Core + measures) ──Outcome──▶ report, charts

The input is a public trace or the demo's generator, played in the simulated cluster with its failures and its people; the policy is
the only difference. ``measures`` (what was due and got) and ``toll`` (what was lost) are read from the decisions; ``waits`` and
``timeline`` add what the pictures show. ``traces`` and ``setting`` are what the bench of fairness plays too. There is no
scheduler here; ``apportion compare`` is the verb.
"""
