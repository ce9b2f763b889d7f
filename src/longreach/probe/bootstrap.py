"""Intervals by resampling documents: tokens of one text are alike, so texts are the unit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from longreach.evaluation.documents import RESAMPLES, draw_documents

Array = NDArray[np.float64]
Statistic = Callable[[Array, Array], Array]
"""Of values [n] or [n, c] under weights [r, n]: a figure, or c of them, for each row of weights."""

_AT_ONCE = 2**22
"""Weights held in memory at a time."""


@dataclass(frozen=True)
class BootstrapEstimate:
    """A figure over all targets, with its 95% interval over documents."""

    value: float
    low: float | None
    """None where fewer than two documents bear on it."""
    high: float | None
    documents: int
    targets: int


def mean(values: Array, weights: Array) -> Array:
    total = weights.sum(1).reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray((weights @ values) / total)


def quantile(share: float) -> Statistic:
    """The smallest value that at least such a share of the targets do not exceed; endless values are welcome."""

    def of(values: Array, weights: Array) -> Array:
        order = values.argsort(kind="stable")
        reached = weights[:, order].cumsum(1)
        place = (reached < share * reached[:, -1:] - 1e-9).sum(1)
        return np.asarray(values[order][place.clip(max=len(values) - 1)])

    return of


def estimate(documents: Sequence[Array], statistic: Statistic) -> list[BootstrapEstimate]:
    """One estimate for each column of the documents' values, [targets] or [targets, columns]."""
    filled = [values for values in documents if len(values)]
    if not filled:
        return []
    values, sizes = np.concatenate(filled), [len(document) for document in filled]
    whole = np.atleast_1d(statistic(values, np.ones((1, len(values))))[0])
    low: list[float | None] = [None] * len(whole)
    high = low
    if len(filled) > 1:
        counts = draw_documents(len(filled)).numpy()
        rows = max(1, _AT_ONCE // len(values))
        parts = [counts[start : start + rows].repeat(sizes, axis=1) for start in range(0, RESAMPLES, rows)]
        drawn = np.concatenate([statistic(values, part) for part in parts]).reshape(RESAMPLES, -1)
        # "lower" and "higher" name drawn values: nothing is interpolated, not even towards infinity
        low = np.quantile(drawn, 0.025, axis=0, method="lower").tolist()
        high = np.quantile(drawn, 0.975, axis=0, method="higher").tolist()
    return [
        BootstrapEstimate(float(value), at_least, at_most, len(filled), len(values))
        for value, at_least, at_most in zip(whole, low, high, strict=True)
    ]
