"""Losses of graphs (tf.compat.v1.losses), which collect themselves."""

from __future__ import annotations

from typing import Any

import sidereal as _sr

from .._dispatch import apply, convert
from .graph import GraphKeys, add_to_collection, get_collection, in_default_graph
from .metrics import _float, _like


class Reduction:
    """How the losses of examples become one (tf.compat.v1.losses.Reduction)."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_OVER_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_BY_NONZERO_WEIGHTS = SUM_OVER_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return (
            cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, cls.SUM_OVER_NONZERO_WEIGHTS
        )  # fmt: skip

    @classmethod
    def validate(cls, key: str) -> None:
        """A ValueError for what is none of them."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}; there are {', '.join(cls.all())}.")


def _weights_like(losses: Any, weights: Any) -> Any:
    weights = _float(weights)
    if weights.shape is not None and len(weights.shape):
        weights = _like(weights, losses)
    return weights


@in_default_graph
def compute_weighted_loss(
    losses: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Losses of examples, weighted and made one as `reduction` says, by default their sum over the
    number of weights that are not zero (tf.compat.v1.losses.compute_weighted_loss)."""
    Reduction.validate(reduction)
    losses = _float(losses)
    weights = _weights_like(losses, weights)
    weighted = _sr.multiply(losses, weights)
    if reduction == Reduction.NONE:
        loss = weighted
    else:
        loss = _sr.reduce_sum(weighted)
        if reduction == Reduction.MEAN:
            every = _sr.multiply(_sr.ones_like(losses), weights)
            loss = apply("DivNoNan", (loss, _sr.reduce_sum(every)))
        elif reduction == Reduction.SUM_OVER_NONZERO_WEIGHTS:
            every = _sr.multiply(_sr.ones_like(losses), weights)
            there = _sr.reduce_sum(_sr.cast(_sr.not_equal(every, 0.0), "float32"))
            loss = apply("DivNoNan", (loss, there))
        elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
            loss = apply("DivNoNan", (loss, _sr.cast(_sr.size(losses), "float32")))
    if scope is not None:
        loss = apply("Identity", (loss,), None, name=f"{scope}/value")
    return add_loss(loss, loss_collection)


def add_loss(loss: Any, loss_collection: str | None = GraphKeys.LOSSES) -> Any:
    """Puts a loss into a collection; gives it back."""
    if loss_collection:
        add_to_collection(loss_collection, loss)
    return loss


@in_default_graph
def sigmoid_cross_entropy(
    multi_class_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Of labels 0 and 1 (tf.compat.v1.losses.sigmoid_cross_entropy)."""
    logits, labels = convert(logits), _float(multi_class_labels)
    if label_smoothing > 0:
        labels = _sr.add(_sr.multiply(labels, 1 - label_smoothing), 0.5 * label_smoothing)
    made = _sr.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


@in_default_graph
def softmax_cross_entropy(
    onehot_labels: Any, logits: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Of rows of probabilities (tf.compat.v1.losses.softmax_cross_entropy)."""
    logits, labels = convert(logits), _float(onehot_labels)
    if label_smoothing > 0:
        share = label_smoothing / labels.shape[1]
        labels = _sr.add(_sr.multiply(labels, 1 - label_smoothing), share)
    made = _sr.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


@in_default_graph
def sparse_softmax_cross_entropy(
    labels: Any, logits: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Of numbers of classes (tf.compat.v1.losses.sparse_softmax_cross_entropy)."""
    logits, labels = convert(logits), convert(labels)
    if labels.shape is not None and len(labels.shape) == len(logits.shape):
        labels = _sr.squeeze(labels, [-1])
    made = _sr.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


@in_default_graph
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """The squares of differences (tf.compat.v1.losses.mean_squared_error)."""
    made = apply("SquaredDifference", (_float(predictions), _float(labels)))
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


@in_default_graph
def absolute_difference(
    labels: Any, predictions: Any, weights: Any = 1.0, scope: str | None = None,
    loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Differences without signs (tf.compat.v1.losses.absolute_difference)."""
    made = _sr.abs(_sr.subtract(_float(predictions), _float(labels)))
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


@in_default_graph
def log_loss(
    labels: Any, predictions: Any, weights: Any = 1.0, epsilon: float = 1e-7,
    scope: str | None = None, loss_collection: str | None = GraphKeys.LOSSES,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:  # fmt: skip
    """Of probabilities (tf.compat.v1.losses.log_loss)."""
    labels, predictions = _float(labels), _float(predictions)
    right = _sr.multiply(labels, _sr.math.log(_sr.add(predictions, epsilon)))
    missing, wrong = _sr.subtract(1.0, labels), _sr.subtract(1.0, predictions)
    other = _sr.multiply(missing, _sr.math.log(_sr.add(wrong, epsilon)))
    made = _sr.negative(_sr.add(right, other))
    return compute_weighted_loss(made, weights, scope, loss_collection, reduction)


def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Any]:
    """The losses of a collection."""
    return get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """What the regularizers of variables have made."""
    return get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@in_default_graph
def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> Any:
    """Their sum; 0 when there are none."""
    found = get_regularization_losses(scope)
    return _sr.add_n(found, name=name) if found else convert(0.0)


@in_default_graph
def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Any:
    """The sum of all losses that were collected, and of those of regularizers."""
    found = get_losses(scope)
    if add_regularization_losses:
        found += get_regularization_losses(scope)
    if not found:
        raise ValueError("no loss has been collected: call one of these losses, or add_loss()")
    return _sr.add_n(found, name=name)


__all__ = [
    "Reduction", "absolute_difference", "add_loss", "compute_weighted_loss", "get_losses",
    "get_regularization_loss", "get_regularization_losses", "get_total_loss", "log_loss",
    "mean_squared_error", "sigmoid_cross_entropy", "softmax_cross_entropy",
    "sparse_softmax_cross_entropy",
]  # fmt: skip
