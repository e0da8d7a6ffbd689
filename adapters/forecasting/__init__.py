"""Forecasters: how long work will run, and what traffic services will see. A process of its own; the core never calls it.

``history`` is what is read of a projection, ``features`` what is known of a workload when it is submitted, ``runtimes`` a model
of its own for each kind of batch work (``boosting`` fits it, ``trees`` is what is kept of it), ``traffic`` a weekly profile for
each service, ``publishing`` what is worth an event, ``process`` the loop, ``backtest`` how good all that was.
Results enter the log as ``forecast.published`` events, with model id, quantiles and horizon, and nowhere else. Floats live here
and end here: what is published is whole milliseconds and thousandths.
Only ``boosting`` imports scikit-learn, and only when something is fitted.
"""
