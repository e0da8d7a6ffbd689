"""Fits quantiles of runtimes by gradient-boosted trees, with scikit-learn, and takes out the numbers of the trees.

The trees minimise the pinball loss of each quantile on logarithms of runtimes (Koenker and Bassett, "Regression Quantiles",
Econometrica 1978; the histogram algorithm is that of LightGBM, Ke et al., NeurIPS 2017). One thread and a fixed seed: equal
rows give equal trees. scikit-learn is imported when something is fitted and nowhere else; it is the extra ``forecast``.
It must never be asked to load a fitted object: what is kept is ``trees.Forest``, whose answers the tests compare with the fit's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.adapters.forecasting.trees import F64, Forest
from apportion.core.errors import ApportionError

TREES = 100
LEAVES = 24
LEAST_IN_LEAF = 20
RATE = 0.08
SEED = 1


class NotInstalled(ApportionError):
    """scikit-learn is not there."""


def check_installed() -> None:
    """Raise ``NotInstalled`` when nothing can be fitted here."""
    try:
        import sklearn  # noqa: F401  # asked for only to know whether it is there
    except ImportError:
        raise NotInstalled(
            "forecasts need scikit-learn, which is not installed; install the extra: pip install 'apportion[forecast]'"
        ) from None


def fit(table: F64, logarithms: F64, weights: F64, ppm: int, category: int) -> Forest:
    """Return trees for one quantile; column ``category`` holds categories. Raises ``NotInstalled``."""
    check_installed()
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingRegressor(
        loss="quantile", quantile=ppm / 1_000_000, max_iter=TREES, learning_rate=RATE, max_leaf_nodes=LEAVES,
        min_samples_leaf=LEAST_IN_LEAF, l2_regularization=1.0, early_stopping=False, random_state=SEED,
        categorical_features=[category],
    )  # fmt: skip
    table = np.where(np.isnan(table).all(axis=0), 0.0, table)  # nothing is known of it in any row, and no tree will ask
    with threadpool_limits(limits=1):
        model.fit(table, logarithms, weights)
    met = table[:, category]
    return taken_out(model, table.shape[1], category, sum(1 << int(value) for value in np.unique(met[~np.isnan(met)]).tolist()))


def taken_out(model: Any, columns: int, category: int, known: int) -> Forest:
    """Return the trees of a fit; ``known`` has the bits of the categories it has met.

    scikit-learn puts categories in front and numbers those it has met; here they keep column and value as they were given.
    """
    order = [category, *(column for column in range(columns) if column != category)]
    begins, parts, bits = [], [], []
    begin = 0
    for (tree,) in model._predictors:
        nodes = tree.nodes
        begins.append(begin)
        own = np.zeros(len(nodes), dtype=np.int64)
        chosen = np.flatnonzero(nodes["is_categorical"] & ~nodes["is_leaf"])
        for node in chosen.tolist():
            low, high = tree.raw_left_cat_bitsets[int(nodes["bitset_idx"][node])][:2].tolist()
            own[node] = np.array(low | high << 32, dtype=np.uint64).astype(np.int64)
        bits.append(own)
        parts.append((nodes, begin))
        begin += len(nodes)
    every = np.concatenate([nodes for nodes, _begin in parts])
    first = np.concatenate([np.full(len(nodes), begin, dtype=np.int64) for nodes, begin in parts])
    leaf = every["is_leaf"].astype(np.bool_)
    here = np.arange(len(every), dtype=np.int64)
    feature = np.array(order, dtype=np.int64)[np.where(leaf, 0, every["feature_idx"]).astype(np.int64)]
    return Forest(
        base=float(model._baseline_prediction.ravel()[0]), begins=np.array(begins, dtype=np.int64), feature=feature,
        threshold=every["num_threshold"].astype(np.float64), missing_left=every["missing_go_to_left"].astype(np.bool_),
        left=np.where(leaf, here, first + every["left"].astype(np.int64)),
        right=np.where(leaf, here, first + every["right"].astype(np.int64)), leaf=leaf,
        category=every["is_categorical"].astype(np.bool_) & ~leaf, bits=np.concatenate(bits), known=known,
        value=every["value"].astype(np.float64),
    )  # fmt: skip
