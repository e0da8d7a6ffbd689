"""Integer randomness that is the same on every machine and in every release: SplitMix64.

Decides nothing; gives whole numbers that are a pure function of a seed and keys. ``random.Random`` is not used because
only its ``random()`` (a float) is promised to stay the same between Python versions, and equal seeds must give equal
bytes for years. Not for secrets. SplitMix64 is by Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FNV_PRIME = 0x100000001B3


def mix(value: int) -> int:
    """Return 64 well-mixed bits of ``value``: the finalizer of SplitMix64."""
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def hashed(seed: int, *keys: int | str) -> int:
    """Return 64 bits of ``seed`` and ``keys`` alone: for facts that must not depend on the order of asking."""
    value = mix(seed & _MASK)
    for key in keys:
        if isinstance(key, str):
            for byte in key.encode():
                value = ((value ^ byte) * _FNV_PRIME) & _MASK
            value = mix(value)
        else:
            value = mix(value ^ (key & _MASK))
    return value


class Dice:
    """A sequence of draws from one seed."""

    def __init__(self, seed: int, *keys: int | str) -> None:
        self._state = hashed(seed, *keys)

    def below(self, bound: int) -> int:
        """Return a whole number from 0 to ``bound`` - 1; the bias for bounds below 2^32 is under 2^-32."""
        if bound < 1:
            raise ValueError(f"below({bound}): the bound must be at least 1")
        self._state = (self._state + _GAMMA) & _MASK
        return (mix(self._state) * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, ppm: int) -> bool:
        """Return True ``ppm`` times in a million."""
        return self.below(1_000_000) < ppm

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Reorder ``items`` in place, each order equally likely (Fisher and Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
