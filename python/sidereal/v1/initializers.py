"""What variables are made by (tf.compat.v1.initializers): functions of (shape, dtype=...)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import sidereal as _sr

from ..dtypes import as_dtype


class _Initializer:
    """Makes a value of a shape, a sequence of extents; with `partition_info`, that part of a value
    of its full_shape."""

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = dtype

    def __call__(
        self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None
    ) -> Any:  # fmt: skip
        kind = as_dtype(dtype if dtype is not None else self.dtype)
        return self._make(list(shape), kind, partition_info)

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        raise NotImplementedError


class zeros_initializer(_Initializer):  # noqa: N801 - TensorFlow's name
    """Zeros; empty strings."""

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        return _sr.zeros(shape, dtype)


class ones_initializer(_Initializer):  # noqa: N801
    """Ones."""

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        return _sr.ones(shape, dtype)


class constant_initializer(_Initializer):  # noqa: N801
    """A number, or a list or array with as many elements as the variable."""

    def __init__(self, value: Any = 0, dtype: Any = "float32") -> None:
        super().__init__(dtype)
        self.value = value

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        value = _sr.convert_to_tensor(np.asarray(self.value), None)
        value = _sr.cast(value, dtype) if value.dtype != dtype else value
        if value.shape == ():
            return _sr.fill(shape, value)
        if part is None:
            return _sr.reshape(value, shape)
        return _sr.slice(_sr.reshape(value, part.full_shape), part.var_offset, shape)


class _Random(_Initializer):
    def __init__(self, seed: int | None, dtype: Any) -> None:
        super().__init__(dtype)
        self.seed = seed

    def _seed(self, part: Any) -> int | None:
        """Of a part: another one for each, as equal seeds would make all parts equal."""
        if self.seed is None or part is None:
            return self.seed
        return self.seed + sum(part.var_offset)


class random_uniform_initializer(_Random):  # noqa: N801
    """Even from `minval` to `maxval`."""

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        super().__init__(seed, dtype)
        self.minval, self.maxval = minval, maxval

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        return _sr.random.uniform(shape, self.minval, self.maxval, dtype, seed=self._seed(part))


class random_normal_initializer(_Random):  # noqa: N801
    """Normal."""

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        super().__init__(seed, dtype)
        self.mean, self.stddev = mean, stddev

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        return _sr.random.normal(shape, self.mean, self.stddev, dtype, seed=self._seed(part))


class truncated_normal_initializer(random_normal_initializer):  # noqa: N801
    """Normal, without what is more than two standard deviations away."""

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        seed = self._seed(part)
        return _sr.random.truncated_normal(shape, self.mean, self.stddev, dtype, seed=seed)


def _fans(shape: Sequence[int]) -> tuple[float, float]:
    """How many inputs and outputs a weight of this shape has."""
    if len(shape) < 1:
        return 1.0, 1.0
    if len(shape) == 1:
        return float(shape[0]), float(shape[0])
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


def _whole(shape: list[int], part: Any) -> list[int]:
    """The shape of the variable that a part is of."""
    return shape if part is None else part.full_shape


class glorot_uniform_initializer(_Random):  # noqa: N801
    """Even, as wide as keeps the variance between layers (Glorot and Bengio, 2010)."""

    def __init__(self, seed: int | None = None, dtype: Any = "float32") -> None:
        super().__init__(seed, dtype)

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        limit = math.sqrt(6.0 / max(1.0, sum(_fans(_whole(shape, part)))))
        return _sr.random.uniform(shape, -limit, limit, dtype, seed=self._seed(part))


class glorot_normal_initializer(_Random):  # noqa: N801
    """As glorot_uniform_initializer, truncated normal."""

    def __init__(self, seed: int | None = None, dtype: Any = "float32") -> None:
        super().__init__(seed, dtype)

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        # The deviation of a normal that was cut at two is this part of what it was.
        cut = 0.87962566103423978
        deviation = math.sqrt(2.0 / max(1.0, sum(_fans(_whole(shape, part))))) / cut
        return _sr.random.truncated_normal(shape, 0.0, deviation, dtype, seed=self._seed(part))
