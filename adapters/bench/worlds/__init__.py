"""The worlds of the measurements: what is built and played so that ``apportion bench`` has something to measure.

Each room is one measurement's own: ``cycles`` (a large cluster with a long queue), ``packing`` (the published experiment on the
openb traces), ``fairness`` (a cluster asked for three times what it has), ``horizon`` (days to be planned). They drive the
production core and stand in for nothing of it. Nothing of the product may import them.
"""
