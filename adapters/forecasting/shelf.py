"""Where fitted models are kept: one file each in a folder, the newest of a kind is asked, an old one is fitted again.

Decides when a model is old: when one end in twenty is new to it, or when a day has passed and there is any. A file that is not
what it is named after is left aside, and said so. The newest ``KEPT`` of a kind stay. Applied by ``process``, which is told
what happened through ``tell``; must never fit twice what is on the shelf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from apportion.adapters.forecasting import runtimes, trees
from apportion.adapters.forecasting.boosting import NotInstalled
from apportion.adapters.forecasting.features import NAMES
from apportion.adapters.forecasting.history import KINDS, Asked
from apportion.adapters.forecasting.trees import F64, Model, ModelBroken
from apportion.core.units import MS_PER_DAY

KEPT = 5
NEW_PART = 20


class Shelf:
    """The models of one installation."""

    def __init__(self, folder: Path, tell: Callable[[str], None], go_on: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._tell = tell
        self._go_on = go_on  # raises when there is no time left to fit

    def models(self, asked: Sequence[Asked], table: F64, now_ms: int) -> dict[str, Model]:
        """Return a model of each kind that has one, fitted now where there is none or it is old."""
        found: dict[str, Model] = {}
        for kind in KINDS:
            model = self._newest(kind)
            if model is None or _is_old(model, asked, now_ms):
                model = self._fitted(kind, asked, table, now_ms) or model
            if model is not None:
                found[kind] = model
        return found

    def _newest(self, kind: str) -> Model | None:
        for path in reversed(self._files(kind)):
            try:
                model = trees.load(path)
            except (ModelBroken, OSError) as error:
                self._tell(str(error))
                continue
            if model.features == NAMES and model.kind == kind:
                return model
        return None

    def _fitted(self, kind: str, asked: Sequence[Asked], table: F64, now_ms: int) -> Model | None:
        try:
            model = runtimes.train(kind, asked, table, now_ms, self._go_on)
        except NotInstalled as error:
            self._tell(f"{kind}: {error}")
            return None
        if model is None:
            return None
        path = trees.save(model, self.folder)
        for old in self._files(kind)[:-KEPT]:
            old.unlink(missing_ok=True)
        self._tell(f"{kind}: fitted on {model.rows:,} ended workloads, kept in {path}")
        return model

    def _files(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"{kind}-runtime-*{trees.SUFFIX}"))


def _is_old(model: Model, asked: Sequence[Asked], now_ms: int) -> bool:
    new = sum(1 for one in asked if one.kind == model.kind and model.as_of_ms < one.ended_ms <= now_ms)
    return new * NEW_PART >= model.rows or (new > 0 and now_ms - model.as_of_ms >= MS_PER_DAY)
