"""Ops under the names of the core; `math`, `array` and `nn` have them under TensorFlow's.

Element by element, broadcasting as NumPy does: add, sub, mul, div, maximum, minimum.
Element by element: neg, exp, log, log1p, sqrt, square, abs, sigmoid, tanh, relu, softplus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .._dispatch import align, apply, binary, convert
from ..dtypes import as_dtype

__all__ = [
    "abs", "add", "cast", "div", "divide", "exp", "identity", "log", "log1p", "mat_mul", "matmul",
    "maximum", "minimum", "mul", "neg", "reduce_mean", "reduce_sum", "relu", "reshape", "sigmoid",
    "slice_axis", "softplus", "sqrt", "square", "stop_gradient", "sub", "tanh",
]


def _unary(op: str, doc: str) -> Any:
    def function(x: Any, name: str | None = None) -> Any:
        return apply(op, (x,), None, name=name)

    function.__name__ = op.lower()
    function.__doc__ = doc
    return function


def _binary(op: str, doc: str) -> Any:
    def function(x: Any, y: Any, name: str | None = None) -> Any:
        return binary(op, x, y, name)

    function.__name__ = op.lower()
    function.__doc__ = doc
    return function


add = _binary("Add", "x + y.")
sub = _binary("Sub", "x - y.")
mul = _binary("Mul", "x * y.")
div = divide = _binary("Div", "x / y.")
maximum = _binary("Maximum", "The greater of x and y; the gradient of a tie goes to x.")
minimum = _binary("Minimum", "The smaller of x and y; the gradient of a tie goes to x.")
neg = _unary("Neg", "-x.")
exp = _unary("Exp", "e to the power x.")
log = _unary("Log", "Natural logarithm.")
log1p = _unary("Log1p", "Natural logarithm of 1 + x, exact near 0.")
sqrt = _unary("Sqrt", "Square root.")
square = _unary("Square", "x * x.")
abs = _unary("Abs", "Absolute value; its gradient at 0 is 0.")  # noqa: A001 - the op's name
sigmoid = _unary("Sigmoid", "1 / (1 + e^-x).")
tanh = _unary("Tanh", "Hyperbolic tangent.")
relu = _unary("Relu", "max(x, 0); its gradient at 0 is 0.")
softplus = _unary("Softplus", "log(1 + e^x).")
identity = _unary("Identity", "x.")
stop_gradient = _unary("StopGradient", "x, through which no gradient flows back.")


def cast(x: Any, dtype: npt.DTypeLike, name: str | None = None) -> Any:
    """`x` with elements of another type (tf.cast). Fractions are cut off, not rounded."""
    x = convert(x)
    wanted = as_dtype(dtype)
    return x if x.dtype == wanted else apply("Cast", (x,), {"dtype": wanted}, name=name)


def mat_mul(x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Any:
    """Product of two matrices."""
    attrs = {"transpose_a": transpose_x, "transpose_b": transpose_y}
    return apply("MatMul", align(x, y), attrs)


def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """Product of two matrices (tf.linalg.matmul)."""
    return mat_mul(a, b, transpose_a, transpose_b)


def _axes(x: Any, axes: Sequence[int] | int) -> list[int]:
    if isinstance(axes, (int, np.integer)):
        return [int(axes)]
    if not axes and x.shape is not None:
        return list(range(len(x.shape)))
    return list(axes)


def reduce_sum(x: Any, axes: Sequence[int] = (), keep_dims: bool = False) -> Any:
    """Sum over `axes` (negative: counted from the end; none given: all)."""
    x = convert(x)
    return apply("ReduceSum", (x,), {"axes": _axes(x, axes), "keep_dims": keep_dims})


def reduce_mean(x: Any, axes: Sequence[int] = (), keep_dims: bool = False) -> Any:
    """Mean over `axes` (negative: counted from the end; none given: all)."""
    x = convert(x)
    return apply("ReduceMean", (x,), {"axes": _axes(x, axes), "keep_dims": keep_dims})


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """One extent may be -1 (what is left); 0 copies the input's extent of that index."""
    return apply("Reshape", (x,), {"shape": list(shape)})


def slice_axis(x: Any, axis: int, begin: int, size: int) -> Any:
    """Elements [begin, begin + size) along `axis`."""
    return apply("SliceAxis", (x,), {"axis": axis, "begin": begin, "size": size})
