"""The bench of fairness: a cluster asked for three times what it has, and what each budget got of what was its due.

::

    setting (cluster, tree, rules) ─┐
    workload (seeded jobs) ─────────┼─▶ play (a light world around ``Core``) ──CycleBatch──▶ measures (pure: due, got, lost, taken)
    scenarios (what happens when) ──┘

Everything is in whole minutes: jobs, cycles, restarts; agents start what is placed at once and save when they are asked to
stop. There is no scheduler here: ``play`` drives the production class, and ``measures``, ``toll`` and ``service`` read the batches
it wrote (``waiting`` looks at the core itself). ``setting``, ``measures`` and ``toll`` are those of ``comparing``.
``apportion bench fairness`` runs the scenarios over seeds and policies.
"""
