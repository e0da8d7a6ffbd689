"""State of the core: struct-of-arrays tables of fixed integer dtypes, counters, and the bytes they become.

``table`` (rows, free list, names), ``schema`` (the columns and their meaning), ``state`` (all tables together),
``digest`` (physical digest, chain over records), ``snapshot`` (bytes <-> State). Only ``core.fold`` writes a state.
"""
