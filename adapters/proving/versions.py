"""Which version of apportion implements which logic number of the core, in words for who has a log of another one.

A pure function of the number and of this program. Every release that raises the number adds its line to ``RELEASES``.
"""

from __future__ import annotations

from importlib.metadata import version

RELEASES: dict[int, str] = {1: "0.1"}  # the versions that begin so implement that core


def own_version() -> str:
    """Return the version of this program."""
    return version("apportion")


def what_to_install(number: int, own: int) -> str:
    """Return which version can read a log that asks for core ``number``; ``own`` is this program's."""
    series = RELEASES.get(number)
    if series is not None:
        return f"core {number} is that of apportion {series}: `pip install 'apportion=={series}.*'` in an environment of its own"
    if number > own:
        return (
            f"core {number} came after apportion {own_version()} (core {own}): `pip install --upgrade apportion`, in an "
            "environment of its own"
        )
    return f"no released version implements core {number}; the record that asks for it was not written by apportion"
