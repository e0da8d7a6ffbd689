"""The type of ``emit``: take a decision into the batch and fold it."""

from __future__ import annotations

from collections.abc import Callable

from apportion.core.decisions import AnyDecision

Emit = Callable[[AnyDecision], None]
