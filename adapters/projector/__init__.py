"""The projector: follows both streams into DuckDB and answers named queries over NATS, and over HTTP where it is asked to.

``following`` (streams -> projection), ``answering`` (queries and waits), ``web`` (the same over HTTP), ``building`` (open,
or build anew beside and swap), ``process`` (all of it as one process, until a signal). DuckDB work is on threads of its own:
one that folds and writes, two that read; the event loop only moves messages. ``asking`` is the side of who asks over NATS,
``listening`` where HTTP listens and who may ask there, ``formats`` answers as Parquet and Arrow, ``sandbox`` one SQL
question in a child process.

Importing this package is light; ``process`` loads DuckDB and the bus.
"""
