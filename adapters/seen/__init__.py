"""What a core sees at a record of the log, as rows for people and programs.

``sight`` makes the core of that record from the log, and what its last cycle knew; ``tree`` tells of pools and budgets,
``work`` of runs, of who waits and why, and of what is kept or held for whom, ``nodes`` of nodes, ``cycle`` of one cycle.
``standing`` tells how budgets stand (``arithmetic``: as sums to recompute), ``offers`` what could start now, ``emptying``
what becomes of the runs of a drained node. All of them read the core's own columns and ask its own functions: nothing is
worked out a second time, and nothing comes from a projection. The core is thrown away afterwards.
"""
