"""The published placement experiment on the openb traces (Weng et al., USENIX ATC 2023), played over the core's kernel.

``openb`` reads the folder as published, ``arrivals`` makes the stream of tasks of one seed, ``play`` places it. Nothing leaves, and
nothing that was placed is moved. ``apportion bench packing`` (``adapters.bench.packing``) prints what came out.
"""
