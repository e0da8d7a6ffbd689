"""Read models in DuckDB: pure consumers of the two streams, disposable and rebuilt by one command.

They import the core's words (events, decisions, units) and never decide anything.
"""
