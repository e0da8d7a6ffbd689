"""A simulated cluster around the real ``Core``: there is no second scheduler here, only a world to schedule.

``dice`` (integer randomness that never changes between releases), ``job`` (what people want), ``world`` (nodes, agents,
processes, failures: decisions in, events out), ``driver`` (``Core`` and world in one process, with a log in memory),
``faults`` (what can happen to events between a producer and the log).
"""
