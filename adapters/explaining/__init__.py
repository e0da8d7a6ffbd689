"""Explanations: why a job waits, what is the least that would start it, why a node was not taken, who might have been preempted.

::

    log up to a tick ──▶ moment (a core before it, and the tick) ──▶ cycle (the core's own phases, run on a copy)
                             │                                          ├──▶ causes, holders: what holds it back, and who
                             │                                          ├──▶ nodes: one node, one job, every test
                             └──▶ trying ──▶ changes (edited events on a copy, a tick: did it start?)
                                                                        └──▶ victims: who else might have gone

Everything here is asked of the core's own functions on a copy of its state, which is thrown away; nothing is worked out a second
time, nothing is written, and no core that goes on deciding is ever touched.
"""
