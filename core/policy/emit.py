"""The type of ``emit``: take a decision into the batch and fold it.

Given to every phase by the engine, so that the policy writes no state and does not know the fold.
"""

from __future__ import annotations

from collections.abc import Callable

from apportion.core.decisions import AnyDecision

Emit = Callable[[AnyDecision], None]
