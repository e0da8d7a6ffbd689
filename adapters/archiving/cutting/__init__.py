"""Cutting the live log behind its archive.

``plan`` says which days may go, ``proof`` refuses unless the archive really has them and the core can start beyond them, and
``bus.shortening`` removes them from the streams. ``apportion archive cut`` puts the three together. Killed anywhere, the archive
has all that is gone; the next run opens what is fenced, plans anew and finishes. Nothing here writes the archive.
"""
