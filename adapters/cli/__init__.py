"""The command line: thin verbs over the adapters, one module per group of verbs.

``main`` is the composition root. ``reading`` and ``writing`` turn small functions into commands with the options that
every read or write has. Nothing here decides anything about GPUs or money: reads ask the projector, writes publish an
event and wait for the core's decision. duckdb, numba, numpy, nats and faststream are imported only inside the commands
that need them, so ``--help`` and completion answer at once.

Exit codes: 0 ok, 1 a check failed or the core refused, 2 usage, 3 cannot reach, 4 stale beyond ``--max-lag``.
"""
