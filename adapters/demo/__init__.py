"""The demo: a simulated cluster under load, played through the real server in stated time.

``trace`` reads the public ITP trace; ``generator`` makes a week of the same shape without a file; ``play`` plays either
against the scheduler that production runs, over a real nats-server; ``report`` says what came of it, to people and to
scripts. The cluster itself is ``adapters.simulation``.
"""
