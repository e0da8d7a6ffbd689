"""How a helper is compiled that is called at each of many thousand steps.

``bare`` is ``njit`` without counting references to arrays: counting is two locked additions per array and call, more than most
helpers do. The compiler refuses a helper that makes an array. What ``njit`` is not told it takes over from who calls: so whoever
makes arrays and is called from a ``bare`` one is compiled ``making``: else it is refused in whichever process compiles it first.
"""

from __future__ import annotations

from typing import TypeVar

from numba import njit

F = TypeVar("F")


def bare(function: F) -> F:
    """Compile a helper that neither makes nor returns an array."""
    return njit(function, cache=True, _nrt=False)  # type: ignore[call-overload]  # it has no type


def making(function: F) -> F:
    """Compile a helper that makes arrays and frees them, whoever calls it."""
    return njit(function, cache=True, _nrt=True)  # type: ignore[call-overload]  # it has no type
