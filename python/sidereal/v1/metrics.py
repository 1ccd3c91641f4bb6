"""Metrics of graphs (tf.compat.v1.metrics): each gives (value, update), and keeps what it has seen
in local variables.

    accuracy, update = tf.metrics.accuracy(labels, predictions)
    session.run(tf.local_variables_initializer())
    for batch in batches:
        session.run(update, feed_dict=batch)
    print(session.run(accuracy))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sidereal as _sr

from .._dispatch import apply, convert
from .graph import GraphKeys, add_to_collections, get_default_graph, in_default_graph
from .scopes import variable_scope
from .variables import Variable

#: What no number is divided by, and what keeps rates of nothing finite.
_EPSILON = 1e-7


def metric_variable(shape: Sequence[int], dtype: Any, name: str | None = None) -> Variable:
    """A local variable of zeros that a metric counts in."""
    with get_default_graph().init_scope():
        return Variable(
            lambda: _sr.zeros(list(shape), dtype),
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES],
            name=name,
            dtype=dtype,
        )


def _float(value: Any) -> Any:
    made = convert(value)
    return made if made.dtype == _sr.float32 else _sr.cast(made, "float32")


def _bool(value: Any) -> Any:
    made = convert(value)
    return made if made.dtype == _sr.bool_ else _sr.cast(made, "bool")


def _like(value: Any, other: Any) -> Any:
    """`value` without, or with, a last dimension of 1, as the other has it."""
    value, other = convert(value), convert(other)
    if value.shape is None or other.shape is None:
        return value
    if len(value.shape) == len(other.shape) + 1 and value.shape[-1] in (1, -1):
        return _sr.squeeze(value, [-1])
    if len(value.shape) + 1 == len(other.shape) and other.shape[-1] in (1, -1):
        return _sr.expand_dims(value, -1)
    return value


def _weights_for(values: Any, weights: Any) -> Any:
    """Weights of the shape of values."""
    weights = _float(weights)
    if weights.shape is not None and len(weights.shape):
        weights = _like(weights, values)
    return _sr.multiply(weights, _sr.ones_like(values, dtype="float32"))


def _done(
    value: Any, update: Any, metrics_collections: Any, updates_collections: Any
) -> tuple[Any, Any]:
    if metrics_collections:
        add_to_collections(metrics_collections, value)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return value, update


def _ratio(x: Any, y: Any) -> Any:
    return apply("DivNoNan", (convert(x), convert(y)))


def _mean(values: Any, weights: Any) -> tuple[Any, Any]:
    """The mean of values, in variables of the scope that lasts."""
    values = _float(values)
    total, count = metric_variable([], "float32", "total"), metric_variable([], "float32", "count")
    if weights is None:
        seen = _sr.cast(_sr.size(values), "float32")
    else:
        weights = _weights_for(values, weights)
        values, seen = _sr.multiply(values, weights), _sr.reduce_sum(weights)
    summed, counted = total.assign_add(_sr.reduce_sum(values)), count.assign_add(seen)
    return _ratio(total, count), _ratio(summed, counted)


@in_default_graph
def mean(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The mean of all values, weighted by `weights` (tf.compat.v1.metrics.mean)."""
    with variable_scope(name, "mean"):
        return _done(*_mean(values, weights), metrics_collections, updates_collections)


@in_default_graph
def accuracy(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """How many predictions equal their labels (tf.compat.v1.metrics.accuracy), of all."""
    with variable_scope(name, "accuracy"):
        predictions = convert(predictions)
        labels = _like(labels, predictions)
        if labels.dtype != predictions.dtype:
            predictions = _sr.cast(predictions, labels.dtype)
        made = _mean(_sr.equal(labels, predictions), weights)
        return _done(*made, metrics_collections, updates_collections)


def _error(
    default_name: str, error: Callable[[Any, Any], Any], root: bool = False
) -> Callable[..., tuple[Any, Any]]:
    @in_default_graph
    def metric(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: str | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        with variable_scope(name, default_name):
            predictions = _float(predictions)
            value, update = _mean(error(_like(_float(labels), predictions), predictions), weights)
            if root:
                value, update = _sr.sqrt(value), _sr.sqrt(update)
            return _done(value, update, metrics_collections, updates_collections)

    metric.__name__ = default_name
    metric.__doc__ = (
        f"The {default_name.replace('_', ' ')} of predictions (tf.compat.v1.metrics."
        f"{default_name})."
    )
    return metric


def _square_of_difference(x: Any, y: Any) -> Any:
    return apply("SquaredDifference", (x, y))


mean_absolute_error = _error("mean_absolute_error", lambda x, y: _sr.abs(_sr.subtract(x, y)))
mean_squared_error = _error("mean_squared_error", _square_of_difference)
root_mean_squared_error = _error("root_mean_squared_error", _square_of_difference, root=True)


# --- Counts of right and wrong.

#: Of what is counted, whether the label and the prediction hold.
_KINDS = {
    "true_positives": (True, True), "false_positives": (False, True),
    "true_negatives": (False, False), "false_negatives": (True, False),
}  # fmt: skip


def _counted(kind: str, labels: Any, predictions: Any, weights: Any) -> tuple[Any, Any]:
    """(value, update) of how many there are of a kind, of bools of one shape."""
    label, prediction = _KINDS[kind]
    found = _sr.logical_and(
        labels if label else _sr.logical_not(labels),
        predictions if prediction else _sr.logical_not(predictions),
    )
    values = _sr.cast(found, "float32")
    if weights is not None:
        values = _sr.multiply(values, _weights_for(values, weights))
    count = metric_variable([], "float32", "count")
    return count.value(), count.assign_add(_sr.reduce_sum(values))


def _count_of(kind: str) -> Callable[..., tuple[Any, Any]]:
    @in_default_graph
    def metric(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: str | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        with variable_scope(name, kind):
            predictions = _bool(predictions)
            made = _counted(kind, _like(_bool(labels), predictions), predictions, weights)
            return _done(*made, metrics_collections, updates_collections)

    metric.__name__ = kind
    metric.__doc__ = (
        f"The sum of weights of {kind.replace('_', ' ')} (tf.compat.v1.metrics.{kind}); labels and "
        "predictions are taken as bools."
    )
    return metric


true_positives = _count_of("true_positives")
false_positives = _count_of("false_positives")
true_negatives = _count_of("true_negatives")
false_negatives = _count_of("false_negatives")


def _share(name: str, others: str) -> Callable[..., tuple[Any, Any]]:
    """True positives of these and of others."""

    @in_default_graph
    def metric(
        labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: str | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        with variable_scope(name, metric.__name__):
            predictions = _bool(predictions)
            labels = _like(_bool(labels), predictions)
            made = []
            for kind in ("true_positives", others):
                with variable_scope(None, kind):
                    made.append(_counted(kind, labels, predictions, weights))
            (right, more_right), (other, more_other) = made
            return _done(
                _ratio(right, _sr.add(right, other)),
                _ratio(more_right, _sr.add(more_right, more_other)),
                metrics_collections,
                updates_collections,
            )

    metric.__name__ = name
    metric.__doc__ = (
        f"The {name} of predictions that are taken as bools (tf.compat.v1.metrics.{name}): true "
        f"positives, of these and {others.replace('_', ' ')}."
    )
    return metric


precision = _share("precision", "false_positives")
recall = _share("recall", "false_negatives")


# --- At thresholds.


def _at_thresholds(
    labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any, kinds: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts by kind for each threshold, and their updates."""
    predictions = _float(predictions)
    labels = _sr.reshape(_like(_bool(labels), predictions), [-1])
    if weights is not None:
        weights = _sr.reshape(_weights_for(predictions, weights), [1, -1])
    edges = convert(np.asarray(thresholds, np.float32).reshape(-1, 1))
    above = _sr.greater(_sr.reshape(predictions, [1, -1]), edges)
    truth = _sr.reshape(labels, [1, -1])
    values, updates = {}, {}
    for kind in kinds:
        label, prediction = _KINDS[kind]
        found = _sr.logical_and(
            truth if label else _sr.logical_not(truth),
            above if prediction else _sr.logical_not(above),
        )
        amount = _sr.cast(found, "float32")
        if weights is not None:
            amount = _sr.multiply(amount, weights)
        count = metric_variable([len(thresholds)], "float32", kind)
        values[kind] = count.value()
        updates[kind] = count.assign_add(_sr.reduce_sum(amount, axis=1))
    return values, updates


def _rate(x: Any, y: Any, epsilon: float) -> Any:
    """x of x and y, for each threshold."""
    return _sr.divide(x, _sr.add(_sr.add(x, y), epsilon))


def _threshold_metric(name: str, others: str) -> Callable[..., tuple[Any, Any]]:
    @in_default_graph
    def metric(
        labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any = None,
        metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        with variable_scope(name, metric.__name__):
            kinds = ("true_positives", others)
            values, updates = _at_thresholds(labels, predictions, thresholds, weights, kinds)
            value, update = (
                _rate(each[kinds[0]], each[kinds[1]], _EPSILON) for each in (values, updates)
            )
            return _done(value, update, metrics_collections, updates_collections)

    metric.__name__ = name
    metric.__doc__ = (
        f"As {name.split('_')[0]}(), for predictions above each of `thresholds` "
        f"(tf.compat.v1.metrics.{name})."
    )
    return metric


precision_at_thresholds = _threshold_metric("precision_at_thresholds", "false_positives")
recall_at_thresholds = _threshold_metric("recall_at_thresholds", "false_negatives")

_SUMMATIONS = ("trapezoidal", "careful_interpolation", "minoring", "majoring")


@in_default_graph
def auc(
    labels: Any, predictions: Any, weights: Any = None, num_thresholds: int = 200,
    metrics_collections: Any = None, updates_collections: Any = None, curve: str = "ROC",
    name: str | None = None, summation_method: str = "trapezoidal", thresholds: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The area under the curve of rates (tf.compat.v1.metrics.auc), from counts at evenly spaced
    thresholds, or `thresholds` of [0, 1]. curve: "ROC" or "PR". summation_method: "trapezoidal",
    "minoring", "majoring", or of PR "careful_interpolation"."""
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    if summation_method not in _SUMMATIONS:
        raise ValueError(f"Invalid summation_method: {summation_method}")
    if summation_method == "careful_interpolation" and curve != "PR":
        raise ValueError("careful_interpolation is of the curve PR only")
    if thresholds is None:
        inner = [(i + 1) / (num_thresholds - 1) for i in range(num_thresholds - 2)]
    else:
        inner = sorted(float(each) for each in thresholds if 0 < each < 1)
    edges = [-_EPSILON, *inner, 1 + _EPSILON]
    with variable_scope(name, "auc"):
        values, updates = _at_thresholds(labels, predictions, edges, weights, list(_KINDS))
        value, update = (_area(each, curve, summation_method) for each in (values, updates))
        return _done(value, update, metrics_collections, updates_collections)


def _area(counts: dict[str, Any], curve: str, method: str) -> Any:
    tp, fp = counts["true_positives"], counts["false_positives"]
    tn, fn = counts["true_negatives"], counts["false_negatives"]
    if method == "careful_interpolation":
        return _interpolated_area(tp, fp, fn)
    epsilon = 1e-6
    recalls = _sr.divide(_sr.add(tp, epsilon), _sr.add(_sr.add(tp, fn), epsilon))
    if curve == "ROC":
        x, y = _rate(fp, tn, epsilon), recalls
    else:
        x = recalls
        y = _sr.divide(_sr.add(tp, epsilon), _sr.add(_sr.add(tp, fp), epsilon))
    first, second = y[:-1], y[1:]
    if method == "minoring":
        heights = _sr.minimum(first, second)
    elif method == "majoring":
        heights = _sr.maximum(first, second)
    else:
        heights = _sr.divide(_sr.add(first, second), 2.0)
    return _sr.reduce_sum(_sr.multiply(_sr.subtract(x[:-1], x[1:]), heights))


def _interpolated_area(tp: Any, fp: Any, fn: Any) -> Any:
    """Of PR: between two thresholds false positives grow with true ones on a line."""
    dtp = _sr.subtract(tp[:-1], tp[1:])
    p = _sr.add(tp, fp)
    dp = _sr.subtract(p[:-1], p[1:])
    slope = _ratio(dtp, _sr.maximum(dp, 0.0))
    intercept = _sr.subtract(tp[1:], _sr.multiply(slope, p[1:]))
    both = _sr.logical_and(_sr.greater(p[:-1], 0.0), _sr.greater(p[1:], 0.0))
    ratio = _sr.where(both, _ratio(p[:-1], _sr.maximum(p[1:], 0.0)), _sr.ones_like(p[1:]))
    area = _sr.multiply(slope, _sr.add(dtp, _sr.multiply(intercept, _sr.math.log(ratio))))
    positives = _sr.maximum(_sr.add(tp[1:], fn[1:]), 0.0)
    return _sr.reduce_sum(_ratio(area, positives))


__all__ = [
    "accuracy", "auc", "false_negatives", "false_positives", "mean", "mean_absolute_error",
    "mean_squared_error", "metric_variable", "precision", "precision_at_thresholds", "recall",
    "recall_at_thresholds", "root_mean_squared_error", "true_negatives", "true_positives",
]  # fmt: skip
