"""Everything that touches the world: the bus, processes, files, people.

Rooms: ``bus`` (NATS: server, streams, reader, writer, publisher), ``service`` (reader -> core -> writer),
``projector`` (reader -> DuckDB, named queries), ``agent`` (real processes on a node), ``ingress`` and ``client``
(other services), ``demo`` (a simulated cluster under load), ``cli`` (the composition root). ``ending``: how each of our
processes ends within a bound when it is told to.
Adapters import core and projections; nothing imports ``adapters.cli``.
"""
