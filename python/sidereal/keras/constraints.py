"""What weights are brought to after an update (keras.constraints): functions of a weight."""

from __future__ import annotations

from typing import Any

from ..ops import math
from ._configs import Configured, Registry
from ._inputs import EPSILON, floating


class Constraint(Configured):
    """Base of the constraints."""

    def __call__(self, w: Any) -> Any:
        """The weight as it is to be."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(w)")


class NonNeg(Constraint):
    """0 in the place of negative numbers."""

    def __call__(self, w: Any) -> Any:
        w = floating(w)
        return math.multiply(w, math.cast(math.greater_equal(w, 0.0), w.dtype))


class _OfNorms(Constraint):
    """Base of those that scale a weight by its norms along `axis`, one or several."""

    axis: Any

    def _wanted(self, norms: Any) -> Any:
        raise NotImplementedError

    def __call__(self, w: Any) -> Any:
        w = floating(w)
        norms = math.sqrt(math.reduce_sum(math.square(w), self.axis, keepdims=True))
        scale = math.divide(self._wanted(norms), math.add(norms, EPSILON))
        return math.multiply(w, scale)


class MaxNorm(_OfNorms):
    """Norms of at most `max_value`."""

    def __init__(self, max_value: float = 2, axis: Any = 0) -> None:
        self.max_value, self.axis = max_value, axis

    def _wanted(self, norms: Any) -> Any:
        return math.minimum(norms, self.max_value)


class UnitNorm(_OfNorms):
    """Norms of 1."""

    def __init__(self, axis: Any = 0) -> None:
        self.axis = axis

    def _wanted(self, norms: Any) -> Any:
        return 1.0


class MinMaxNorm(_OfNorms):
    """Norms from `min_value` to `max_value`; with a `rate` below 1 that part of the way there."""

    def __init__(
        self, min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0, axis: Any = 0
    ) -> None:
        self.min_value, self.max_value, self.rate, self.axis = min_value, max_value, rate, axis

    def _wanted(self, norms: Any) -> Any:
        inside = math.clip_by_value(norms, self.min_value, self.max_value)
        return math.add(math.multiply(inside, self.rate), math.multiply(norms, 1 - self.rate))


max_norm, min_max_norm, non_neg, unit_norm = MaxNorm, MinMaxNorm, NonNeg, UnitNorm

_registry = Registry("keras.constraints", (MaxNorm, MinMaxNorm, NonNeg, UnitNorm))
get, serialize, deserialize = _registry.get, _registry.serialize, _registry.deserialize

__all__ = [
    "Constraint", "MaxNorm", "MinMaxNorm", "NonNeg", "UnitNorm", "deserialize", "get", "max_norm",
    "min_max_norm", "non_neg", "serialize", "unit_norm",
]  # fmt: skip
