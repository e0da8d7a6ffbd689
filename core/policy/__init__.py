"""The decider: what one cycle decides, in a fixed order, each phase reading the state that the phase before it left.

``cycle`` gives the order. ``expire`` (what is late), ``closing`` (final accounts of runs), ``funding`` (allowances, who is
funded), ``draining`` (who must leave a node), ``placing`` (whose turn it is, reservations, backfill), ``preempting`` (whole plans,
of which ``choosing`` finds the least), ``starting`` (the start itself), ``explaining`` (why the rest waits); ``fitting`` is the one
question about space, asked by all. A pool's *policy* is a column set by event: ``fair`` is all of these; the room ``baselines``
holds the rules of others to compare with, which share everything but the order and the victims.

Phases are functions of the state that *emit* decisions; ``emit`` is given to them, appends the decision to the batch and folds
it at once. They never write the state themselves, and never import the fold: trusting a stored batch folds the same decisions
without running any of this.
"""
