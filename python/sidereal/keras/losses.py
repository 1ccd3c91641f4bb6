"""Losses of predictions beside targets (keras.losses).

Functions give a loss for each example; the classes of the same names reduce these to a number.
Targets of any number type are cast to the predictions' dtype, in which is computed; shapes (n,) and
(n, 1) go together.
"""

from __future__ import annotations

import functools
import math as _numbers
from collections.abc import Callable
from typing import Any

from .._conversion import inside
from .._dispatch import convert
from ..ops import array, math, nn
from ._configs import Configured, Registry, constructor, own_name, own_parameters, parameter
from ._inputs import (
    EPSILON,
    check_rank,
    check_shapes,
    count,
    extent,
    floating,
    labels_for,
    numeric,
    pair,
    same_rank,
)


class Reduction:
    """Names of reductions, as tf.keras.losses.Reduction has them."""

    AUTO = "auto"
    NONE = "none"
    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"


_MEANS = ("sum_over_batch_size", "mean", "auto")
_REDUCTIONS = (*_MEANS, "sum", "mean_with_sample_weight", "none", None)


class Loss(Configured):
    """Base of the losses: call(y_true, y_pred) gives the losses of the examples.

    reduction: "sum_over_batch_size" or "mean": their mean; "sum"; "mean_with_sample_weight": over
        the sum of the weights; "none" or None: as they are.
    dtype: in which is computed; None: that of the predictions.
    """

    #: Whether targets are the numbers of classes, which stay integers.
    _of_classes = False

    def __init__(
        self, name: str | None = None, reduction: str | None = "sum_over_batch_size",
        dtype: Any = None,
    ) -> None:  # fmt: skip
        self.name = name or own_name(self)
        self.dtype = dtype
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f"loss '{self.name}': reduction is {reduction!r}; it must be one of "
                f"{', '.join(map(str, _REDUCTIONS))}"
            )
        self.reduction = reduction

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The losses, one for each example; a loss of one's own has this method."""
        raise NotImplementedError(f"{type(self).__name__} has no call(y_true, y_pred)")

    def _is_counted(self, y_true: Any, losses: Any) -> Any:
        """Which losses count, as bools; None: all."""
        return None

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """The loss. `sample_weight` broadcasts to the losses, which are multiplied by it."""
        y_pred = floating(y_pred, self.dtype)
        y_true = numeric(f"loss '{self.name}'", "y_true", y_true)
        if not self._of_classes:
            y_true = math.cast(y_true, y_pred.dtype)
        losses = floating(inside(self.call)(y_true, y_pred))
        counted = self._is_counted(y_true, losses)
        weights = None
        if sample_weight is not None:
            weights = math.cast(convert(sample_weight), losses.dtype)
            losses, weights = same_rank(losses, weights)
            names = ("a loss", "sample_weight")
            check_shapes(f"loss '{self.name}'", names, losses, weights, equal=False)
            losses = math.multiply(losses, weights)
        return self._reduced(losses, weights, counted)

    def _reduced(self, losses: Any, weights: Any, counted: Any) -> Any:
        if self.reduction in (None, "none") or losses.shape == ():
            return losses
        total = math.reduce_sum(losses)
        if self.reduction == "sum":
            return total
        if self.reduction == "mean_with_sample_weight" and weights is not None:
            if counted is not None:
                weights = math.multiply(*same_rank(weights, math.cast(counted, weights.dtype)))
            divisor = math.reduce_sum(weights)
        elif counted is not None:
            divisor = math.add(math.reduce_sum(math.cast(counted, losses.dtype)), EPSILON)
        else:
            divisor = count(losses, losses.dtype)
        return math.divide_no_nan(total, divisor)


# --- Functions: a loss for each example.


def _of_pairs(function: Callable[..., Any], equal: bool = False) -> Callable[..., Any]:
    """The function on tensors of one dtype and rank, whose shapes must be `equal` or broadcast."""

    @functools.wraps(function)
    def loss(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        y_true, y_pred = pair(f"{function.__name__}()", y_true, y_pred, equal)
        return function(y_true, y_pred, *args, **kwargs)

    return loss


def pairwise_logistic(y_true: Any, y_pred: Any) -> Any:
    """Of lists [batch, n] of scores: for each two of a list of which one has the higher label
    log(1 + exp(lower - higher)), and the mean of those (TensorFlow Ranking has it). Labels below 0
    stand for places without an item."""
    y_true, y_pred = pair("pairwise_logistic()", y_true, y_pred, True)
    higher, lower = array.expand_dims(y_true, -1), array.expand_dims(y_true, -2)
    pairs = math.logical_and(math.greater(higher, lower), math.greater_equal(lower, 0.0))
    counts = math.cast(pairs, y_pred.dtype)
    gaps = math.subtract(array.expand_dims(y_pred, -2), array.expand_dims(y_pred, -1))
    losses = math.reduce_sum(math.multiply(math.softplus(gaps), counts), axis=[-2, -1])
    return math.divide_no_nan(losses, math.reduce_sum(counts, axis=[-2, -1]))


_of_equal_pairs = functools.partial(_of_pairs, equal=True)

mean_squared_error = _of_pairs(nn.mean_squared_error)
mean_absolute_error = _of_pairs(nn.mean_absolute_error)
huber = _of_pairs(nn.huber)
hinge = _of_pairs(nn.hinge)
cosine_similarity = _of_pairs(nn.cosine_similarity)


@_of_pairs
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Any:
    """100 times the mean over the last dimension of |y - p| / |y|."""
    size = math.maximum(math.abs(y_true), EPSILON)
    part = math.abs(math.divide(math.subtract(y_true, y_pred), size))
    return math.multiply(math.reduce_mean(part, axis=-1), 100.0)


@_of_pairs
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last dimension of (log(1 + y) - log(1 + p))^2, negative numbers being 0."""
    logs = [math.log(math.add(math.maximum(x, EPSILON), 1.0)) for x in (y_true, y_pred)]
    return math.reduce_mean(math.squared_difference(*logs), axis=-1)


@_of_pairs
def log_cosh(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last dimension of log(cosh(p - y))."""
    x = math.subtract(y_pred, y_true)
    logs = math.add(x, math.softplus(math.multiply(x, -2.0)))
    return math.reduce_mean(math.subtract(logs, _numbers.log(2.0)), axis=-1)


@_of_pairs
def squared_hinge(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last dimension of max(1 - y p, 0)^2; labels that are all 0 or 1 stand for
    -1 and 1."""
    short = nn.relu(math.subtract(1.0, math.multiply(nn.signed_labels(y_true), y_pred)))
    return math.reduce_mean(math.square(short), axis=-1)


@_of_pairs
def categorical_hinge(y_true: Any, y_pred: Any) -> Any:
    """max(1 + n - p, 0) over the last dimension: p is the score of the right class, n the greatest
    of the others."""
    right = math.reduce_sum(math.multiply(y_true, y_pred), axis=-1)
    wrong = math.reduce_max(math.multiply(math.subtract(1.0, y_true), y_pred), axis=-1)
    return nn.relu(math.add(math.subtract(wrong, right), 1.0))


@_of_pairs
def poisson(y_true: Any, y_pred: Any) -> Any:
    """The mean over the last dimension of p - y log(p)."""
    logs = math.log(math.add(y_pred, EPSILON))
    return math.reduce_mean(math.subtract(y_pred, math.multiply(y_true, logs)), axis=-1)


@_of_pairs
def kl_divergence(y_true: Any, y_pred: Any) -> Any:
    """sum(y log(y / p)) over the last dimension, y and p being distributions."""
    y, p = (math.clip_by_value(x, EPSILON, 1.0) for x in (y_true, y_pred))
    return math.reduce_sum(math.multiply(y, math.log(math.divide(y, p))), axis=-1)


def _smoothed(labels: Any, smoothing: float, classes: Any) -> Any:
    """Labels of which the part `smoothing` is spread over all classes."""
    if not smoothing:
        return labels
    return math.add(math.multiply(labels, 1.0 - smoothing), smoothing / classes)


#: How far from 1 probabilities of 16 bits are kept: in them 1 - EPSILON is 1.
_FAR = {"float16": 2**-11, "bfloat16": 2**-8}


def _inside(p: Any) -> Any:
    """Probabilities kept away from 0 and 1."""
    return math.clip_by_value(p, EPSILON, 1.0 - _FAR.get(p.dtype.name, EPSILON))


def _log_loss(y: Any, p: Any) -> Any:
    """-y log(p) - (1 - y) log(1 - p), element by element."""
    p = _inside(p)
    rest = math.xlog1py(math.subtract(1.0, y), math.negative(p))
    return math.negative(math.add(math.xlogy(y, p), rest))


@_of_equal_pairs
def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:  # fmt: skip
    """The mean over `axis` of -y log(p) - (1 - y) log(1 - p), p being y_pred, or with `from_logits`
    its sigmoid."""
    y = _smoothed(y_true, label_smoothing, 2.0)
    if from_logits:
        losses = nn.sigmoid_cross_entropy_with_logits(y, y_pred)
    else:
        losses = _log_loss(y, y_pred)
    return math.reduce_mean(losses, axis=axis)


@_of_equal_pairs
def binary_focal_crossentropy(
    y_true: Any, y_pred: Any, apply_class_balancing: bool = False, alpha: float = 0.25,
    gamma: float = 2.0, from_logits: bool = False, label_smoothing: float = 0.0, axis: int = -1,
) -> Any:  # fmt: skip
    """binary_crossentropy(), each term of it times the part (1 - p)^gamma that was missed (Lin et
    al., 2018); `apply_class_balancing`: times `alpha` where y is 1, 1 - alpha where it is 0."""
    y = _smoothed(y_true, label_smoothing, 2.0)
    p = math.sigmoid(y_pred) if from_logits else y_pred

    def mix(one: Any, other: Any) -> Any:
        return math.add(math.multiply(y, one), math.multiply(math.subtract(1.0, y), other))

    missed = math.subtract(1.0, mix(p, math.subtract(1.0, p)))
    losses = math.multiply(math.pow(missed, gamma), _log_loss(y, p))
    if apply_class_balancing:
        losses = math.multiply(losses, mix(alpha, 1.0 - alpha))
    return math.reduce_mean(losses, axis=axis)


def _distribution(p: Any, axis: int) -> Any:
    """`p` brought to the sum 1 along `axis`, and away from 0 and 1."""
    return _inside(math.divide(p, math.reduce_sum(p, axis, keepdims=True)))


@_of_equal_pairs
def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0,
    axis: int = -1,
) -> Any:  # fmt: skip
    """-sum(y log(p)) over the classes along `axis`, p being y_pred brought to the sum 1, or with
    `from_logits` its softmax."""
    y = _smoothed(y_true, label_smoothing, extent(y_true, axis, y_true.dtype))
    if from_logits:
        return nn.softmax_cross_entropy_with_logits(y, y_pred, axis)
    logs = math.log(_distribution(y_pred, axis))
    return math.negative(math.reduce_sum(math.multiply(y, logs), axis=axis))


@_of_equal_pairs
def categorical_focal_crossentropy(
    y_true: Any, y_pred: Any, alpha: Any = 0.25, gamma: float = 2.0, from_logits: bool = False,
    label_smoothing: float = 0.0, axis: int = -1,
) -> Any:  # fmt: skip
    """categorical_crossentropy(), each term of it times alpha (1 - p)^gamma. `alpha`: a number, or
    one for each class."""
    y = _smoothed(y_true, label_smoothing, extent(y_true, axis, y_true.dtype))
    p = _distribution(math.softmax(y_pred, axis) if from_logits else y_pred, axis)
    losses = math.multiply(math.negative(y), math.log(p))
    weights = math.multiply(math.pow(math.subtract(1.0, p), gamma), alpha)
    return math.reduce_sum(math.multiply(weights, losses), axis=axis)


def sparse_categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, ignore_class: int | None = None,
    axis: int = -1,
) -> Any:  # fmt: skip
    """-log(p) of the class whose number is in y_true, p being as in categorical_crossentropy(); 0
    for the class `ignore_class`. A number that is no class is an InvalidArgumentError."""
    where, y_pred = "sparse_categorical_crossentropy()", floating(y_pred)
    check_rank(where, y_pred=y_pred)
    rank = len(y_pred.shape)
    if axis not in (-1, rank - 1):
        y_pred = array.transpose(y_pred, _with_last(rank, axis))
    labels = labels_for(where, y_true, y_pred)
    counts = None
    if ignore_class is not None:
        counts = math.not_equal(labels, ignore_class)
        labels = math.where(counts, labels, 0)
    logits = y_pred if from_logits else math.log(_distribution(y_pred, -1))
    losses = nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return losses if counts is None else math.where(counts, losses, 0.0)


def _with_last(rank: int, axis: int) -> list[int]:
    """Dimensions in an order that has `axis` last."""
    axis %= rank
    return [*(i for i in range(rank) if i != axis), axis]


# --- Classes: losses that are reduced.


def _class(
    class_name: str, function: Callable[..., Any], name: str = "", base: type[Loss] = Loss,
    reduction_after: int | None = None,
) -> type[Loss]:  # fmt: skip
    """The class of a function: its arguments, among them `reduction`, then `name` and `dtype`."""
    own = own_parameters(function)
    place = len(own) if reduction_after is None else reduction_after
    own.insert(place, parameter("reduction", "sum_over_batch_size"))
    own += [parameter("name", name or function.__name__), parameter("dtype", None)]

    def init(self: Any, arguments: dict[str, Any]) -> None:
        base.__init__(self, *(arguments.pop(key) for key in ("name", "reduction", "dtype")))
        self._own = arguments
        vars(self).update(arguments)

    def call(self: Any, y_true: Any, y_pred: Any) -> Any:
        return function(y_true, y_pred, **self._own)

    members = {
        "__init__": constructor(own, init),
        "call": call,
        "__doc__": f"{function.__name__}(), reduced. {function.__doc__}",
        "__module__": __name__,
    }
    return type(class_name, (base,), members)


class _OfClasses(Loss):
    """Base of those whose targets are the numbers of classes, one of which may be ignored."""

    _of_classes = True
    ignore_class: int | None

    def _is_counted(self, y_true: Any, losses: Any) -> Any:
        if self.ignore_class is None:
            return None
        return math.not_equal(math.cast(y_true, "int64"), self.ignore_class)


MeanSquaredError = _class("MeanSquaredError", mean_squared_error)
MeanAbsoluteError = _class("MeanAbsoluteError", mean_absolute_error)
MeanAbsolutePercentageError = _class("MeanAbsolutePercentageError", mean_absolute_percentage_error)
MeanSquaredLogarithmicError = _class("MeanSquaredLogarithmicError", mean_squared_logarithmic_error)
Huber = _class("Huber", huber, "huber_loss")
LogCosh = _class("LogCosh", log_cosh)
PairwiseLogistic = _class("PairwiseLogistic", pairwise_logistic)
Hinge = _class("Hinge", hinge)
SquaredHinge = _class("SquaredHinge", squared_hinge)
CategoricalHinge = _class("CategoricalHinge", categorical_hinge)
Poisson = _class("Poisson", poisson)
KLDivergence = _class("KLDivergence", kl_divergence)
CosineSimilarity = _class("CosineSimilarity", cosine_similarity)
BinaryCrossentropy = _class("BinaryCrossentropy", binary_crossentropy)
BinaryFocalCrossentropy = _class("BinaryFocalCrossentropy", binary_focal_crossentropy)
CategoricalCrossentropy = _class("CategoricalCrossentropy", categorical_crossentropy)
CategoricalFocalCrossentropy = _class(
    "CategoricalFocalCrossentropy", categorical_focal_crossentropy
)
SparseCategoricalCrossentropy = _class(
    "SparseCategoricalCrossentropy", sparse_categorical_crossentropy, base=_OfClasses,
    reduction_after=2,
)  # fmt: skip

bce = BCE = binary_crossentropy
mse = MSE = mean_squared_error
mae = MAE = mean_absolute_error
mape = MAPE = mean_absolute_percentage_error
msle = MSLE = mean_squared_logarithmic_error
kld = KLD = kullback_leibler_divergence = kl_divergence
logcosh = log_cosh

_CLASSES = (
    MeanSquaredError, MeanAbsoluteError, MeanAbsolutePercentageError, MeanSquaredLogarithmicError,
    Huber, LogCosh, Hinge, SquaredHinge, CategoricalHinge, Poisson, KLDivergence,
    CosineSimilarity, BinaryCrossentropy, BinaryFocalCrossentropy, CategoricalCrossentropy,
    CategoricalFocalCrossentropy, SparseCategoricalCrossentropy, PairwiseLogistic,
)  # fmt: skip
_FUNCTIONS = (
    mean_squared_error, mean_absolute_error, mean_absolute_percentage_error,
    mean_squared_logarithmic_error, huber, log_cosh, hinge, squared_hinge, categorical_hinge,
    poisson, kl_divergence, cosine_similarity, binary_crossentropy, binary_focal_crossentropy,
    categorical_crossentropy, categorical_focal_crossentropy, sparse_categorical_crossentropy,
    pairwise_logistic,
)  # fmt: skip
#: Keras' short names of functions.
ALIASES = {
    "bce": bce, "BCE": bce, "mse": mse, "MSE": mse, "mae": mae, "MAE": mae, "mape": mape,
    "MAPE": mape, "msle": msle, "MSLE": msle, "kld": kld, "KLD": kld,
    "kullback_leibler_divergence": kld, "logcosh": log_cosh,
}  # fmt: skip

_registry = Registry("keras.losses", (*_CLASSES, *_FUNCTIONS), ALIASES)
get, serialize, deserialize = _registry.get, _registry.serialize, _registry.deserialize

__all__ = [
    "BCE", "KLD", "MAE", "MAPE", "MSE", "MSLE", "BinaryCrossentropy", "BinaryFocalCrossentropy",
    "CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalHinge",
    "CosineSimilarity", "Hinge", "Huber", "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError",
    "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
    "PairwiseLogistic", "Poisson", "Reduction", "SparseCategoricalCrossentropy", "SquaredHinge",
    "bce", "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "cosine_similarity", "deserialize",
    "get", "hinge", "huber", "kl_divergence", "kld", "kullback_leibler_divergence", "log_cosh",
    "logcosh", "mae", "mape", "mean_absolute_error", "mean_absolute_percentage_error",
    "mean_squared_error", "mean_squared_logarithmic_error", "mse", "msle", "pairwise_logistic",
    "poisson", "serialize", "sparse_categorical_crossentropy", "squared_hinge",
]  # fmt: skip
