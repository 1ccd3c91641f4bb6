"""Metrics of what is counted at thresholds: true and false positives and negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from .._dispatch import convert
from ..ops import array, math
from ._configs import one_of
from ._inputs import (
    EPSILON,
    check_rank,
    check_shapes,
    floating,
    is_known,
    same_rank,
    weights_like,
)
from ._metric import Metric, numbers

#: Less than every prediction that is among the top k.
_LEAST = -1e10


def _threshold_list(where: str, thresholds: Any, standard: float) -> list[float]:
    """Thresholds as a list; ValueError when one is not in [0, 1]."""
    if thresholds is None:
        return [standard]
    made = numbers(thresholds)
    if not made or not all(0 <= t <= 1 for t in made):
        raise ValueError(f"{where}: thresholds are {thresholds}; they must be in [0, 1]")
    return made


def confusion(
    where: str, y_true: Any, y_pred: Any, sample_weight: Any, thresholds: Sequence[float],
    label_weights: Any = None, by_label: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The weights of true and false positives and negatives by name, [thresholds], or with
    `by_label` [thresholds, labels] of y_pred[examples, labels]. Predicted to be positive is what is
    greater than the threshold; positive are labels that are not 0."""
    y_true, y_pred = same_rank(math.cast(convert(y_true), y_pred.dtype), y_pred)
    check_rank(where, y_true=y_true, y_pred=y_pred)
    check_shapes(where, ("y_true", "y_pred"), y_true, y_pred, equal=True)
    y_true = math.cast(math.cast(y_true, "bool"), y_pred.dtype)
    weights = weights_like(where, sample_weight, y_pred)
    if label_weights is not None:
        weights = math.multiply(weights, math.cast(convert(label_weights), y_pred.dtype))

    # An example in bucket k is greater than the k lowest thresholds.
    order = np.argsort(thresholds, kind="stable")
    ranked = convert([thresholds[i] for i in order], y_pred.dtype)
    buckets = array.searchsorted(ranked, array.reshape(y_pred, [-1]), out_type="int64")
    size, labels = len(thresholds) + 1, 1
    if by_label:
        labels = y_pred.shape[-1]
        first = convert(np.arange(labels) * size, "int64")
        buckets = array.reshape(math.add(array.reshape(buckets, [-1, labels]), first), [-1])

    def above_and_below(values: Any) -> list[Any]:
        flat = array.reshape(values, [-1])
        sums = math.unsorted_segment_sum(flat, buckets, labels * size)
        sums = array.cumsum(array.reshape(sums, [labels, size]), axis=1, reverse=True)
        above = sums[:, 1:]
        below = math.subtract(sums[:, :1], above)
        if (np.diff(order) < 0).any():
            places = np.argsort(order).astype(np.int64)
            above, below = (array.gather(x, places, axis=1) for x in (above, below))
        if by_label:
            return [array.transpose(x, [1, 0]) for x in (above, below)]
        return [array.reshape(x, [-1]) for x in (above, below)]

    ones = math.multiply(y_true, weights)
    tp, fn = above_and_below(ones)
    fp, tn = above_and_below(math.subtract(weights, ones))
    return {
        "true_positives": tp, "false_positives": fp, "true_negatives": tn, "false_negatives": fn
    }  # fmt: skip


def _only_top(y_pred: Any, k: int) -> Any:
    """Predictions with all but the k greatest of each example made less than any threshold."""
    classes = y_pred.shape[-1]
    if not is_known(classes):
        raise ValueError("top_k needs predictions of a known number of classes")
    places = math.top_k(y_pred, k).indices
    chosen = math.reduce_any(array.one_hot(places, classes, dtype="bool"), axis=-2)
    return math.where(chosen, y_pred, _LEAST)


class _Counted(Metric):
    """Base of those that keep the counts named in `_kept`, one number for each threshold."""

    _kept: tuple[str, ...] = ()
    top_k: int | None = None
    class_id: int | None = None

    def __init__(self, thresholds: Any, name: str | None, dtype: Any) -> None:
        super().__init__(dtype, name)
        standard = 0.5 if self.top_k is None else _LEAST
        self.thresholds = _threshold_list(f"metric '{self.name}'", thresholds, standard)
        for count in self._kept:
            setattr(self, count, self.add_variable((len(self.thresholds),), name=count))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        where = f"metric '{self.name}'"
        y_true, y_pred = same_rank(convert(y_true), floating(y_pred, self._dtype))
        check_shapes(where, ("y_true", "y_pred"), y_true, y_pred, equal=True)
        if self.top_k is not None:
            y_pred = _only_top(y_pred, self.top_k)
        if self.class_id is not None:
            classes = y_pred.shape[-1]
            if is_known(classes) and not 0 <= self.class_id < classes:
                raise errors.InvalidArgumentError(
                    f"{where}: class_id is {self.class_id}; y_pred has {classes} classes"
                )
            y_true, y_pred = y_true[..., self.class_id], y_pred[..., self.class_id]
        counts = confusion(where, y_true, y_pred, sample_weight, self.thresholds)
        for count in self._kept:
            getattr(self, count).assign_add(counts[count])

    def _alone(self, values: Any) -> Any:
        """The values of all thresholds, of a single one as a scalar."""
        return values[0] if len(self.thresholds) == 1 else values

    def result(self) -> Any:
        return self._alone(getattr(self, self._kept[0]).value())


class _Count(_Counted):
    def __init__(self, thresholds: Any = None, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(thresholds, name, dtype)


class TruePositives(_Count):
    """The weight of positives that are predicted to be, at each threshold (0.5)."""

    _kept = ("true_positives",)


class FalsePositives(_Count):
    """The weight of negatives that are predicted to be positive, at each threshold (0.5)."""

    _kept = ("false_positives",)


class TrueNegatives(_Count):
    """The weight of negatives that are predicted to be, at each threshold (0.5)."""

    _kept = ("true_negatives",)


class FalseNegatives(_Count):
    """The weight of positives that are predicted to be negative, at each threshold (0.5)."""

    _kept = ("false_negatives",)


class _Share(_Counted):
    """Base of shares of the true positives; `top_k`: predicted are the k greatest of each example;
    `class_id`: of that class alone."""

    def __init__(
        self, thresholds: Any = None, top_k: int | None = None, class_id: int | None = None,
        name: str | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        self.top_k, self.class_id = top_k, class_id
        super().__init__(thresholds, name, dtype)

    def result(self) -> Any:
        right, wrong = (getattr(self, count) for count in self._kept)
        return self._alone(math.divide_no_nan(right, math.add(right, wrong)))


class Precision(_Share):
    """The share of predicted positives that are, at each threshold (0.5)."""

    _kept = ("true_positives", "false_positives")


class Recall(_Share):
    """The share of positives that are predicted, at each threshold (0.5)."""

    _kept = ("true_positives", "false_negatives")


class AUC(Metric):
    """The area under the curve of true over false positives ("ROC"), or of precision over recall
    ("PR"), from `num_thresholds` points of it, or from those at `thresholds` and both ends.

    summation_method: of the area between two points: "interpolation", or the least ("minoring") or
        greatest ("majoring") it may be.
    multi_label: one area for each column of y_pred[examples, labels], then their mean, weighted by
        `label_weights`; else all are one, and label_weights are of the elements.
    from_logits: predictions are logits.
    """

    _KEPT = ("true_positives", "false_positives", "true_negatives", "false_negatives")

    def __init__(
        self, num_thresholds: int = 200, curve: str = "ROC",
        summation_method: str = "interpolation", name: str | None = None, dtype: Any = None,
        thresholds: Any = None, multi_label: bool = False, num_labels: int | None = None,
        label_weights: Any = None, from_logits: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype, name)
        where = f"metric '{self.name}'"
        self.curve = one_of(where, "curve", curve, ("ROC", "PR"))
        ways = ("interpolation", "minoring", "majoring")
        self.summation_method = one_of(where, "summation_method", summation_method, ways)
        if thresholds is None:
            if num_thresholds <= 1:
                raise ValueError(
                    f"{where}: num_thresholds is {num_thresholds}; it must be more than 1"
                )
            inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
        else:
            inner = sorted(_threshold_list(where, thresholds, 0.5))
        self.thresholds = [-EPSILON, *inner, 1.0 + EPSILON]
        self.num_thresholds = len(self.thresholds)
        if num_labels is not None and not multi_label:
            raise ValueError(f"{where}: num_labels is for multi_label=True")
        self.multi_label, self.num_labels = multi_label, num_labels
        self.label_weights = None if label_weights is None else numbers(label_weights)
        self.from_logits = from_logits
        if not multi_label or num_labels is not None:
            self._build(num_labels)

    def _build(self, labels: int | None) -> None:
        shape = (self.num_thresholds,) if labels is None else (self.num_thresholds, labels)
        for count in self._KEPT:
            setattr(self, count, self.add_variable(shape, name=count))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        where = f"metric '{self.name}'"
        y_pred = floating(y_pred, self._dtype)
        if self.from_logits:
            y_pred = math.sigmoid(y_pred)
        if self.multi_label:
            self._check_labels(where, y_pred)
        weights = None if self.multi_label else self.label_weights
        counts = confusion(
            where, y_true, y_pred, sample_weight, self.thresholds, weights, self.multi_label
        )
        for count in self._KEPT:
            getattr(self, count).assign_add(counts[count])

    def _check_labels(self, where: str, y_pred: Any) -> None:
        if y_pred.shape is None or len(y_pred.shape) != 2 or not is_known(y_pred.shape[1]):
            raise errors.InvalidArgumentError(
                f"{where}: with multi_label, y_pred has a shape [examples, labels]; it has "
                f"{y_pred.shape}"
            )
        if not self._variables:
            self._build(y_pred.shape[1])
        labels = self._variables[0].shape[1]
        if labels != y_pred.shape[1]:
            raise errors.InvalidArgumentError(
                f"{where}: y_pred has {y_pred.shape[1]} labels; the metric has {labels}"
            )

    def result(self) -> Any:
        if not self._variables:
            raise errors.FailedPreconditionError(
                f"metric '{self.name}': the number of labels is known with the first update; call "
                "update_state() before result(), or say num_labels"
            )
        tp, fp, tn, fn = (getattr(self, count).value() for count in self._KEPT)
        if self.curve == "PR" and self.summation_method == "interpolation":
            areas = _precision_recall_areas(tp, fp, fn)
        else:
            x = recall = math.divide_no_nan(tp, math.add(tp, fn))
            if self.curve == "ROC":
                x, y = math.divide_no_nan(fp, math.add(fp, tn)), recall
            else:
                y = math.divide_no_nan(tp, math.add(tp, fp))
            if self.summation_method == "interpolation":
                heights = math.multiply(math.add(y[:-1], y[1:]), 0.5)
            else:
                choose = math.minimum if self.summation_method == "minoring" else math.maximum
                heights = choose(y[:-1], y[1:])
            areas = math.multiply(math.subtract(x[:-1], x[1:]), heights)
        if not self.multi_label:
            return math.reduce_sum(areas)
        by_label = math.reduce_sum(areas, axis=0)
        if self.label_weights is None:
            return math.reduce_mean(by_label)
        weighted = math.reduce_sum(math.multiply(by_label, self.label_weights))
        return math.divide_no_nan(weighted, sum(self.label_weights))

    def reset_state(self) -> None:
        if self._variables:
            super().reset_state()


def _precision_recall_areas(tp: Any, fp: Any, fn: Any) -> Any:
    """Areas between points of the curve of precision over recall, true positives growing evenly
    with positives from one point to the next (Davis and Goadrich, 2006)."""
    found = math.subtract(tp[:-1], tp[1:])
    positives = math.add(tp, fp)
    slope = math.divide_no_nan(found, math.maximum(math.subtract(positives[:-1], positives[1:]), 0))
    start = math.subtract(tp[1:], math.multiply(slope, positives[1:]))
    both = math.logical_and(math.greater(positives[:-1], 0), math.greater(positives[1:], 0))
    ratio = math.divide_no_nan(positives[:-1], math.maximum(positives[1:], 0))
    logs = math.log(math.where(both, ratio, 1.0))
    area = math.multiply(slope, math.add(found, math.multiply(start, logs)))
    return math.divide_no_nan(area, math.maximum(math.add(tp[1:], fn[1:]), 0))
