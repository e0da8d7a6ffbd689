"""Imported history: what other schedulers recorded, in a DuckDB file of its own, answered in our units.

``schema.sql`` holds tables, views and the one macro that splits attempts over calendar days; ``history`` is the only writer;
``usage`` asks who used what; ``audit`` checks that it adds up. No decision of our core is in this file, and nothing here reads
a log: it must never be mixed with ``projection.duckdb``, whose rows can be derived again.
"""
