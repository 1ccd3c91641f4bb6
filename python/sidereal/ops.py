"""Ops on outputs. Outputs also take + - * / with each other and with numbers, and x @ y.

Element by element, broadcasting as NumPy does: add, sub, mul, div, maximum, minimum.
Element by element: neg, exp, log, log1p, sqrt, square, abs, sigmoid, tanh, relu, softplus.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from . import _native
from ._native import Output

_ops = _native.ops

add = _ops.add
sub = _ops.sub
mul = _ops.mul
div = _ops.div
maximum = _ops.maximum
minimum = _ops.minimum
neg = _ops.neg
exp = _ops.exp
log = _ops.log
log1p = _ops.log1p
sqrt = _ops.sqrt
square = _ops.square
abs = _ops.abs  # noqa: A001 - the name of the op
sigmoid = _ops.sigmoid
tanh = _ops.tanh
relu = _ops.relu
softplus = _ops.softplus
stop_gradient = _ops.stop_gradient


def cast(x: Output, dtype: npt.DTypeLike) -> Output:
    """`x` with elements of another type."""
    return _ops.cast(x, np.dtype(dtype).name)


def mat_mul(
    x: Output, y: Output, transpose_x: bool = False, transpose_y: bool = False
) -> Output:
    """Product of two matrices."""
    return _ops.mat_mul(x, y, transpose_x, transpose_y)


def reduce_sum(x: Output, axes: Sequence[int] = (), keep_dims: bool = False) -> Output:
    """Sum over `axes` (negative: counted from the end; none given: all)."""
    return _ops.reduce_sum(x, list(axes), keep_dims)


def reduce_mean(x: Output, axes: Sequence[int] = (), keep_dims: bool = False) -> Output:
    """Mean over `axes` (negative: counted from the end; none given: all)."""
    return _ops.reduce_mean(x, list(axes), keep_dims)


def reshape(x: Output, shape: Sequence[int]) -> Output:
    """One extent may be -1 (what is left); 0 copies the input's extent of that index."""
    return _ops.reshape(x, list(shape))


def slice_axis(x: Output, axis: int, begin: int, size: int) -> Output:
    """Elements [begin, begin + size) along `axis`."""
    return _ops.slice_axis(x, axis, begin, size)
