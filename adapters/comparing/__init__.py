"""The same work under several policies: one table, and two pictures of it.

::

    story (jobs and world, equal for all) ──▶ playing (a process per policy: world + Core + measures) ──Outcome──▶ report, charts

The input is a public trace or the demo's generator, played in the simulated cluster with its failures and its people; the policy is
the only difference. Measures are those of ``fairness``, read from the decisions; ``waits`` and ``timeline`` add what the
pictures show. ``apportion compare`` is the verb. There is no scheduler here.
"""
