"""The archive of an installation: its days written behind the log, checked, and relied on when the log is cut.

::

    log ──▶ writing (a day that is over: segments, snapshot, line in the manifest) ──▶ directory ──▶ checking, parquet
                                                                                          └──▶ cutting (the live log behind it)

``apportion archive`` is the verb, a module or room to each of its parts. How the files look and how a log is read from them is told
in ``logs``; what can be made of the past that they hold in ``past``, ``proving`` and ``seen``.
"""
