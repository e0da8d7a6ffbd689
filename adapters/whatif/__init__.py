"""What if: a past range of the log again, with something changed; or the time to come, with one more request.

::

    EVENTS, DECISIONS ──history (once)──▶ outside events, recorded runs, recorded service demand
                                                 │ change (shares, policy, cluster, without, submit)
                                                 ▼
            playing: the production Core  ◀──▶  remade: a run that is as it was is replayed, any other is made again
                                                 │
                                                 ▼
            measures (both worlds alike) ──▶ difference ──▶ report, charts, tables (SQL)

There is no second scheduler here: ``Core`` decides, on ticks of its own log. What people, nodes and clocks did is taken from
history as it was; what runs did is taken from history for as long as the run is the same run at the same time on the same GPUs,
and from ``demand`` (how much useful time the workload needed, how it ended, what a start and a stop cost) afterwards. So a
what-if in which nothing is changed gives back history, decision for decision. ``calibration`` measures what the model is worth
where it is needed; ``forward`` looks ahead from the newest state instead.
"""
