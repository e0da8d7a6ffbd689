"""Everything that touches the world: the bus, processes, files, people.

Rooms, by who needs them:

- a cluster that runs: ``bus`` (NATS: server, streams, reader, writer, publisher), ``service`` (reader -> core -> writer),
  ``projector`` (reader -> DuckDB, questions and answers), ``agent`` (real processes on a node), ``ingress`` (request and reply for
  other programs), ``local`` (all of it on one machine), ``processes`` (what each of them has: home, build, end);
- its past: ``logs`` (without a server), ``archiving`` (days written, checked, cut off the log), ``past`` (the core at a record:
  snapshots and replay), ``proving`` (replay as proof), ``seen`` (what that core sees), ``explaining`` (why), ``whatif``,
  ``imports`` (the history of other schedulers);
- people: ``cli`` (the composition root), ``text`` (how values and reasons read), ``statements``, ``charts``;
- beside it: ``forecasting`` (a producer of events), ``demo`` and ``simulation`` (a world to schedule), and ``bench``, with
  the rooms of what it measures: ``comparing``, ``cycles``, ``fairness``, ``horizon``, ``packing``.

What other people call by its name stands at the top: ``client`` (for other services) and ``site`` (set up a site once).
Adapters import core and projections; nothing imports ``adapters.cli``.
"""
