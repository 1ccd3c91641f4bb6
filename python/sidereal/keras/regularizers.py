"""Penalties on weights that are added to a loss (keras.regularizers)."""

from __future__ import annotations

import math as _numbers
from typing import Any

from ..ops import array, math
from ._configs import Configured, Registry
from ._inputs import floating


def _factor(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {value!r}; it must be a number of at least 0")
    if not 0 <= value < _numbers.inf:
        raise ValueError(f"{name} is {value}; it must be a number of at least 0")
    return float(value)


class Regularizer(Configured):
    """Base of the regularizers: functions of a weight."""

    def __call__(self, x: Any) -> Any:
        """The penalty, a scalar."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(x)")


def _norms(x: Any, l1: float, l2: float) -> Any:
    x = floating(x)
    parts = []
    if l1:
        parts.append(math.multiply(math.reduce_sum(math.abs(x)), l1))
    if l2:
        parts.append(math.multiply(math.reduce_sum(math.square(x)), l2))
    return math.add_n(parts) if parts else array.zeros([], x.dtype)


class L1L2(Regularizer):
    """l1 sum(|x|) + l2 sum(x^2)."""

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = _factor("l1", 0.0 if l1 is None else l1)
        self.l2 = _factor("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        return _norms(x, self.l1, self.l2)


class L1(Regularizer):
    """l1 sum(|x|)."""

    def __init__(self, l1: float = 0.01) -> None:
        self.l1 = _factor("l1", 0.01 if l1 is None else l1)

    def __call__(self, x: Any) -> Any:
        return _norms(x, self.l1, 0.0)


class L2(Regularizer):
    """l2 sum(x^2)."""

    def __init__(self, l2: float = 0.01) -> None:
        self.l2 = _factor("l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        return _norms(x, 0.0, self.l2)


class OrthogonalRegularizer(Regularizer):
    """factor times the mean of |cosine| of two rows, or columns, of a matrix."""

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        self.factor = _factor("factor", factor)
        if mode not in ("rows", "columns"):
            raise ValueError(f'mode is {mode!r}; it must be "rows" or "columns"')
        self.mode = mode

    def __call__(self, x: Any) -> Any:
        x = floating(x)
        if len(x.shape) != 2:
            raise ValueError(
                f"OrthogonalRegularizer takes matrices; the weight has shape {tuple(x.shape)}"
            )
        by_rows = self.mode == "rows"
        n = x.shape[0 if by_rows else 1]
        units = math.l2_normalize(x, 1 if by_rows else 0, 1e-14)
        product = math.matmul(units, units, transpose_a=not by_rows, transpose_b=by_rows)
        others = math.multiply(product, math.subtract(1.0, array.eye(n, dtype=x.dtype)))
        pairs = n * (n - 1) / 2
        total = math.reduce_sum(math.abs(others))
        return math.divide_no_nan(math.multiply(total, 0.5 * self.factor), pairs)


l1, l2, l1_l2, orthogonal_regularizer = L1, L2, L1L2, OrthogonalRegularizer

_registry = Registry("keras.regularizers", (L1, L2, L1L2, OrthogonalRegularizer))
get, serialize, deserialize = _registry.get, _registry.serialize, _registry.deserialize

__all__ = [
    "L1", "L1L2", "L2", "OrthogonalRegularizer", "Regularizer", "deserialize", "get", "l1",
    "l1_l2", "l2", "orthogonal_regularizer", "serialize",
]  # fmt: skip
