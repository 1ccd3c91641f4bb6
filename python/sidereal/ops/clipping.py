"""Gradients made smaller before they are applied. Rows of equal indices of IndexedSlices are summed
first, so that a gradient by rows is clipped as the same gradient in full would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._dispatch import apply, convert
from ..indexed_slices import IndexedSlices
from . import array
from . import math as math_ops


def summed(grad: Any) -> Any:
    """The gradient with every row once."""
    if not isinstance(grad, IndexedSlices):
        return convert(grad)
    rows, place = array.unique(grad.indices)[:2]
    values = math_ops.unsorted_segment_sum(grad.values, place, array.size(rows))
    return IndexedSlices(values, rows, grad.dense_shape)


def global_norm(t_list: Sequence[Any]) -> Any:
    """The root of the sum of all squares (tf.linalg.global_norm); entries may be None."""
    squares = [_square(summed(t)) for t in t_list if t is not None]
    if not squares:
        raise ValueError("global_norm() of no values")
    return apply("Sqrt", (apply("AddN", squares) if len(squares) > 1 else squares[0],))


def clip_by_norm(t: Any, clip_norm: Any) -> Any:
    """`t` times min(1, clip_norm / its norm) (tf.clip_by_norm)."""
    t = summed(t)
    return _scaled(t, _ratio(apply("Sqrt", (_square(t),)), clip_norm))


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None
) -> tuple[list[Any], Any]:
    """All times min(1, clip_norm / their global norm), and that norm (tf.clip_by_global_norm)."""
    norm = global_norm(t_list) if use_norm is None else convert(use_norm)
    ratio = _ratio(norm, clip_norm)
    return [None if t is None else _scaled(t, ratio) for t in t_list], norm


def clip_values(t: Any, limit: float) -> Any:
    """Every number of a gradient inside of [-limit, limit]."""
    t = summed(t)
    if isinstance(t, IndexedSlices):
        values = math_ops.clip_by_value(t.values, -limit, limit)
        return IndexedSlices(values, t.indices, t.dense_shape)
    return math_ops.clip_by_value(t, -limit, limit)


def _values(t: Any) -> Any:
    return t.values if isinstance(t, IndexedSlices) else t


def _square(t: Any) -> Any:
    """The sum of squares, as float32 at least, of what has been summed."""
    values = _values(t)
    if values.dtype not in ("float32", "float64"):
        values = apply("Cast", (values,), {"dtype": "float32"})
    return apply("ReduceSum", (apply("Square", (values,)),), {"axes": []})


def _ratio(norm: Any, clip_norm: Any) -> Any:
    limit = convert(clip_norm, norm.dtype)
    return apply("Div", (limit, apply("Maximum", (norm, limit))))


def _scaled(t: Any, ratio: Any) -> Any:
    values = convert(_values(t))
    values = values * apply("Cast", (ratio,), {"dtype": values.dtype})
    if isinstance(t, IndexedSlices):
        return IndexedSlices(values, t.indices, t.dense_shape)
    return values
