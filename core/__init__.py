"""The core of apportion: a fold and a decider, pure.

::

    EVENTS ──record──▶ fold(state, record) ──at a clock.tick──▶ decide(state) ──▶ CycleBatch ──▶ DECISIONS
                           ▲                                                        │
                           └──────────────── decisions are folded like inputs ◀─────┘

A *record* is what the log says; the *state* is integer columns; a *cycle* runs only when a ``clock.tick`` record is
read; its *decisions* are facts with their reasons, written as one batch. Replay can trust them, verify them, or ignore
them (what-if). Nothing here does I/O, reads a clock, draws a random number, or holds a float.

Where things are, from the ground up: ``units``, ``calendar`` and ``errors``; ``reasons`` (enums of refusal), ``envelope``,
``fields``, ``events``, ``decisions`` (the words); ``kernels`` (Numba, one file each); ``state`` (tables, digest, snapshot);
``ledger`` (money; beside it ``lag``, what is owed, and ``usage``, what a baseline remembers); ``fold`` (the only writer of state);
``policy`` (funding, order, placement, preemption); ``engine`` (the class ``Core``).
"""
