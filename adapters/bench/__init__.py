"""Measurements behind ``apportion bench NAME``: each module has ``run(...) -> dict`` and prints nothing to stdout.

They depend on the machine, so they are never tests; the numbers they return are for people and for comparison.
"""
