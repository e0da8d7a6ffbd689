"""The bus: NATS JetStream as the sequencer of EVENTS and the fence of DECISIONS.

``server`` (the embedded nats-server), ``topology`` (streams as data, create and audit), ``connection`` (client
settings), ``reader`` and ``decisions`` (the two log ports), ``publisher`` (pipelined, idempotent), ``local`` (all of
it in one object).

Decisions
    * Own cursor, ephemeral ack-none pull consumer. Acknowledgements kept by the server do not survive its
      ``kill -9``, and a consumer's ``num_pending`` of 0 is no end of the log; only ``last_seq`` of STREAM.INFO is.
    * Own publisher. The client library's ``publish_async`` never resolves a future whose acknowledgement is an error.
    * One message, or one atomic batch, per cycle, fenced by the expected last sequence on its first message.
      Pipelined expectations do not fence: an intruder's write fills the missing place and the rest is stored.
"""
