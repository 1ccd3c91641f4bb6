"""Matrices and vectors: sidereal.linalg."""

from __future__ import annotations

import math as _numbers
from typing import Any

from .. import errors
from .._dispatch import convert
from ..nest import flatten
from . import math as _math
from .array import eye, transpose
from .clipping import global_norm
from .contraction import einsum, tensordot
from .math import l2_normalize, matmul
from .sorting import band_part, diag, diag_part

__all__ = [
    "band_part", "diag", "diag_part", "einsum", "eye", "global_norm", "l2_normalize", "matmul",
    "matrix_transpose", "matvec", "norm", "normalize", "tensordot", "trace",
]  # fmt: skip


def matrix_transpose(a: Any, name: str | None = None) -> Any:
    """The last two dimensions exchanged (tf.linalg.matrix_transpose)."""
    a = convert(a)
    rank = len(a.shape)
    if rank < 2:
        raise errors.InvalidArgumentError(f"{a.shape} is no shape of matrices")
    return transpose(a, [*range(rank - 2), rank - 1, rank - 2], name=name)


def matvec(a: Any, b: Any, transpose_a: bool = False, name: str | None = None) -> Any:
    """The product of matrices and vectors (tf.linalg.matvec)."""
    product = matmul(a, convert(b)[..., None], transpose_a=transpose_a, name=name)
    return product[..., 0]


def trace(x: Any, name: str | None = None) -> Any:
    """The sum of the main diagonal (tf.linalg.trace)."""
    return _math.reduce_sum(diag_part(x), -1, name=name)


def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The length of vectors (tf.norm): of all elements, or along `axis`. `ord` is "euclidean" (over
    two axes also "fro"), 1, 2, another number above 0, or infinity."""
    x = convert(tensor)
    axes = None if axis is None else flatten(axis)
    if ord == "fro" and (axes is None or len(axes) != 2):
        raise ValueError("ord 'fro' is of matrices: give two axes")
    if axes is not None and len(axes) == 2 and ord not in ("euclidean", "fro"):
        raise errors.UnimplementedError(f"ord {ord!r} of matrices: 'euclidean' and 'fro' are there")
    size = _math.abs(x)
    if ord in ("euclidean", "fro", 2):
        return _math.sqrt(_math.reduce_sum(x * x, axes, keepdims), name=name)
    if not isinstance(ord, (int, float)) or ord <= 0:
        raise ValueError(f"ord is {ord!r}; it must be 'euclidean', 'fro' or a number above 0")
    if ord == 1:
        return _math.reduce_sum(size, axes, keepdims, name=name)
    if ord == _numbers.inf:
        return _math.reduce_max(size, axes, keepdims, name=name)
    return _math.pow(_math.reduce_sum(_math.pow(size, ord), axes, keepdims), 1 / ord, name=name)


def normalize(
    tensor: Any, ord: Any = "euclidean", axis: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(`tensor` divided by its norm, the norm) (tf.linalg.normalize)."""
    length = norm(tensor, ord, axis, keepdims=True)
    return _math.divide(tensor, length, name=name), length
