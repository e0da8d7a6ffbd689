"""Logs without a server: ``memory`` for simulation and tests, ``archive`` for files that outlive the server.

Both are the ports ``EventLog`` and ``DecisionLog``; the same contract tests run over them and over NATS.
"""
