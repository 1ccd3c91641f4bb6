"""Figures of two models on the same rows, with what chance may have made of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """A figure of two models, A and B. Intervals are of the confidence that was asked for."""

    name: str
    method: str
    higher_is_better: bool
    a: float
    b: float
    a_interval: tuple[float, float]
    b_interval: tuple[float, float]
    #: B less A.
    difference: float
    interval: tuple[float, float]
    #: How often rows such as these make so much of a difference where there is none.
    p_value: float

    @property
    def verdict(self) -> str:
        """ "better" or "worse" of B, where the interval of the difference is on one side of 0."""
        low, high = self.interval
        if not (low > 0 or high < 0):
            return "no difference"
        return "better" if (low > 0) == self.higher_is_better else "worse"

    def told(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}


def _midranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    return np.asarray(ranks[inverse.reshape(-1)], np.float64)


def delong(labels: npt.NDArray[Any], scores: Floats) -> tuple[Floats, Floats]:
    """AUCs of the rows of `scores` [models, rows], and their covariances [models, models].

    Source: DeLong, DeLong and Clarke-Pearson, "Comparing the Areas under Two or More Correlated
    Receiver Operating Characteristic Curves", 1988, by the ranks of Sun and Xu, 2014.
    """
    ones = labels > 0.5
    m, n = int(ones.sum()), int((~ones).sum())
    above, below, areas = [], [], []
    for one in scores:
        ranks = _midranks(one)
        areas.append((ranks[ones].sum() / m - (m + 1) / 2) / n)
        above.append((ranks[ones] - _midranks(one[ones])) / n)
        below.append(1 - (ranks[~ones] - _midranks(one[~ones])) / m)
    return np.asarray(areas), _covariance(above) + _covariance(below)


def _covariance(parts: list[Floats]) -> Floats:
    """Of the means of these."""
    values = np.asarray(parts)
    count = values.shape[1]
    if count < 2:
        return np.zeros((len(parts), len(parts)))
    return np.asarray(np.atleast_2d(np.cov(values)) / count)


def _compared(
    name: str, method: str, higher: bool, values: Floats, covariance: Floats, confidence: float,
    most: float,
) -> Compared:  # fmt: skip
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0)) * z
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    # What rounding leaves of equal predictions is nothing.
    error = math.sqrt(variance) if variance > 1e-18 else 0.0
    difference = float(values[1] - values[0])
    if error > 0:
        p_value = 2 * (1 - NormalDist().cdf(abs(difference) / error))
    else:
        p_value = 1.0 if abs(difference) < 1e-9 else 0.0

    def interval(i: int) -> tuple[float, float]:
        return (max(0.0, float(values[i] - spread[i])), min(most, float(values[i] + spread[i])))

    return Compared(
        name, method, higher, float(values[0]), float(values[1]), interval(0), interval(1),
        difference, (difference - z * error, difference + z * error), p_value,
    )  # fmt: skip


def _of_means(
    name: str, of_rows: list[Floats], confidence: float, method: str = "paired rows"
) -> Compared:
    values = np.asarray([one.mean() for one in of_rows])
    return _compared(name, method, False, values, _covariance(of_rows), confidence, math.inf)


def compare(
    labels: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any], is_binary: bool,
    confidence: float = 0.95,
) -> list[Compared]:  # fmt: skip
    """AUC (DeLong) and log loss (mean of the differences of rows) of probabilities; the squared
    and absolute error of anything else. There is no AUC of rows with one kind of label."""
    scores = [np.asarray(one, np.float64) for one in (a, b)]
    if not is_binary:
        differences = [one - labels for one in scores]
        return [
            _of_means("mse", [one**2 for one in differences], confidence),
            _of_means("mae", [np.abs(one) for one in differences], confidence),
        ]
    out = []
    ones = labels > 0.5
    if ones.any() and not ones.all():
        areas, covariance = delong(labels, np.asarray(scores))
        out.append(_compared("auc", "DeLong", True, areas, covariance, confidence, 1.0))
    least = float(np.finfo(np.float32).eps)
    losses = []
    for one in scores:
        p = np.clip(one, least, 1 - least)
        losses.append(-np.where(ones, np.log(p), np.log1p(-p)))
    out.append(_of_means("log_loss", losses, confidence))
    return out
