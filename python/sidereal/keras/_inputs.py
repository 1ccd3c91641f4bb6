"""What losses and metrics do with targets, predictions and weights before they compute."""

from __future__ import annotations

import math
from typing import Any

from .. import errors
from .._dispatch import convert
from ..dtypes import float32, string
from ..ops import array
from ..ops.math import cast, multiply

#: What keeps logarithms and divisions from infinity (keras.config.epsilon).
EPSILON = 1e-7


def floating(x: Any, dtype: Any = None) -> Any:
    """`x` as a tensor of floats: of `dtype`, else as it is or, if it is none, float32."""
    x = convert(x)
    if dtype is not None:
        return cast(x, dtype)
    return x if x.dtype.kind == "f" else cast(x, float32)


def check_rank(where: str, **values: Any) -> None:
    """ValueError when a number of dimensions is not known while a graph is built."""
    for name, value in values.items():
        if value.shape is None:
            raise ValueError(
                f"{where}: the rank of {name} is not known; say its shape with ensure_shape()"
            )


def _fitted(low: Any, high: Any) -> tuple[Any, Any]:
    if high.shape[-1] != 1:
        return low, high
    if len(low.shape) == 1:
        return array.expand_dims(low, -1), high
    return low, array.squeeze(high, -1)


def same_rank(x: Any, y: Any) -> tuple[Any, Any]:
    """Both with one rank where one of them has a last dimension of extent 1 more: a vector beside
    it gets such a dimension, beside other tensors it goes."""
    if x.shape is None or y.shape is None or abs(len(x.shape) - len(y.shape)) != 1:
        return x, y
    if len(x.shape) < len(y.shape):
        return _fitted(x, y)
    y, x = _fitted(y, x)
    return x, y


def is_known(extent: int | None) -> bool:
    return extent is not None and extent >= 0


def check_shapes(where: str, names: tuple[str, str], x: Any, y: Any, equal: bool) -> None:
    """InvalidArgumentError unless both shapes broadcast, or are equal, as far as is known."""
    if x.shape is None or y.shape is None:
        return
    fits = not equal or len(x.shape) == len(y.shape)
    for n, m in zip(reversed(x.shape), reversed(y.shape)):
        both = is_known(n) and is_known(m)
        fits = fits and (not both or n == m or (not equal and 1 in (n, m)))
    if not fits:
        raise errors.InvalidArgumentError(
            f"{where}: {names[0]} has shape {tuple(x.shape)} and {names[1]} {tuple(y.shape)}; they "
            + ("must be equal" if equal else "must broadcast")
        )


def weights_like(where: str, weights: Any, x: Any) -> Any:
    """Weights in the shape and dtype of `x`; those of examples hold for all their elements."""
    ones = array.ones_like(x)
    if weights is None:
        return ones
    weights = cast(convert(weights), x.dtype)
    check_rank(where, sample_weight=weights)
    rank = len(x.shape)
    if len(weights.shape) == rank + 1 and weights.shape[-1] == 1:
        weights = array.squeeze(weights, -1)
    while 0 < len(weights.shape) < rank:
        weights = array.expand_dims(weights, -1)
    check_shapes(where, ("y_pred", "sample_weight"), x, weights, equal=False)
    return multiply(ones, weights)


def numeric(where: str, name: str, value: Any) -> Any:
    """A value as a tensor; TypeError if it is text."""
    value = convert(value)
    if value.dtype == string:
        raise TypeError(
            f"{where}: {name} is text; make numbers of it first, as keras.layers.StringLookup does"
        )
    return value


def pair(where: str, y_true: Any, y_pred: Any, equal: bool = False) -> tuple[Any, Any]:
    """Targets and predictions as tensors of the predictions' dtype and of one rank."""
    y_pred, y_true = floating(y_pred), numeric(where, "y_true", y_true)
    y_true, y_pred = same_rank(cast(y_true, y_pred.dtype), y_pred)
    check_shapes(where, ("y_true", "y_pred"), y_true, y_pred, equal)
    return y_true, y_pred


def labels_for(where: str, y_true: Any, y_pred: Any) -> Any:
    """Class numbers as int64 of the shape of `y_pred` without its last dimension."""
    labels = cast(numeric(where, "y_true", y_true), "int64")
    check_rank(where, y_true=labels, y_pred=y_pred)
    if len(labels.shape) == len(y_pred.shape) and labels.shape[-1] == 1:
        labels = array.squeeze(labels, -1)
    rank = len(y_pred.shape) - 1
    fits = len(labels.shape) == rank and all(
        n == m or not is_known(n) or not is_known(m) for n, m in zip(labels.shape, y_pred.shape)
    )
    if not fits:
        raise errors.InvalidArgumentError(
            f"{where}: y_true has shape {tuple(labels.shape)} and y_pred {tuple(y_pred.shape)}; "
            "y_true has one class number for each row of y_pred"
        )
    return labels


def extent(x: Any, axis: int, dtype: Any) -> Any:
    """An extent as a number, or as a value of the graph where it is not known yet."""
    if x.shape is not None and is_known(x.shape[axis]):
        return float(x.shape[axis])
    return cast(array.getitem(array.shape(x), axis), dtype)


def count(x: Any, dtype: Any) -> Any:
    """The number of elements, as extent() says one."""
    if x.shape is not None and all(is_known(n) for n in x.shape):
        return float(math.prod(x.shape))
    return cast(array.size(x), dtype)
