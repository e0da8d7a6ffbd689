"""The parts of a local cluster, one process tree on one machine; ``up`` puts them together.

``opening`` (the first records of a local log), ``children`` (processes that are started again when they die),
``component`` (what each of them runs), ``names`` (who and where, as tokens).

Decisions
    * Each component is its own OS process: a crash of one is not a crash of another, and ``kill -9`` of any is a test.
    * A component ends when ``up`` ends, however that ended: it holds the reading end of a pipe whose other end only
      ``up`` has. So there are no left-over cores or agents to look for at the next start. The nats-server is the
      exception; the next start attaches to it.
    * Runs are not part of the tree. They live under their supervisors and are adopted at the next start.
"""
