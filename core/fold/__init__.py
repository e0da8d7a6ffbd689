"""The only writer of State: one function per event and per decision.

``records`` takes a record apart (subject, envelope, payload), dispatches it, and turns every refusal into a decision to be
written by the next cycle. ``setup``, ``budgets``, ``nodes``, ``workloads``, ``runs`` hold the functions of the inputs;
``outcomes`` those of the decisions; ``access`` who may do what; ``release`` the end of a run, which has several causes.

A fold function either changes the state or returns ``No(reason, ...)`` and has changed nothing. It never raises for bad
input, never decides, and knows no time but the record's.
"""
