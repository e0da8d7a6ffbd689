"""The horizon's planner on days that are made up, or real: scenarios, first-come-first-served, an upper bound, and a rolling week.

For ``apportion bench horizon`` and its tests; the core knows nothing of it. All is a function of seeds and files.
"""
