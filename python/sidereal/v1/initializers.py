"""What variables are made by (tf.compat.v1.initializers): functions of (shape, dtype=...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import sidereal as _sr

from .._initial_values import Distribution, variance_scaling
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
    """Draws from a distribution, which may follow from the shape of the whole variable."""

    def __init__(self, seed: int | None, dtype: Any) -> None:
        super().__init__(dtype)
        self.seed = seed

    def _distribution(self, shape: list[int]) -> Distribution:
        raise NotImplementedError

    def _make(self, shape: list[int], dtype: Any, part: Any) -> Any:
        if part is None:
            return self._distribution(shape).draw(shape, dtype, self.seed)
        # Equal seeds would make all parts equal.
        seed = None if self.seed is None else self.seed + sum(part.var_offset)
        return self._distribution(part.full_shape).draw(shape, dtype, seed)


class random_uniform_initializer(_Random):  # noqa: N801
    """Even from `minval` to `maxval`."""

    def __init__(
        self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        super().__init__(seed, dtype)
        self.minval, self.maxval = minval, maxval

    def _distribution(self, shape: list[int]) -> Distribution:
        return Distribution("uniform", self.minval, self.maxval)


class random_normal_initializer(_Random):  # noqa: N801
    """Normal."""

    _kind = "normal"

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        super().__init__(seed, dtype)
        self.mean, self.stddev = mean, stddev

    def _distribution(self, shape: list[int]) -> Distribution:
        return Distribution(self._kind, self.mean, self.stddev)


class truncated_normal_initializer(random_normal_initializer):  # noqa: N801
    """Normal, without what is more than two standard deviations away."""

    _kind = "truncated_normal"


class glorot_uniform_initializer(_Random):  # noqa: N801
    """Even, as wide as keeps the variance between layers (Glorot and Bengio, 2010)."""

    _kind = "uniform"

    def __init__(self, seed: int | None = None, dtype: Any = "float32") -> None:
        super().__init__(seed, dtype)

    def _distribution(self, shape: list[int]) -> Distribution:
        return variance_scaling(shape, 1.0, "fan_avg", self._kind)


class glorot_normal_initializer(glorot_uniform_initializer):  # noqa: N801
    """As glorot_uniform_initializer, truncated normal."""

    _kind = "truncated_normal"


class variance_scaling_initializer(_Random):  # noqa: N801
    """Of variance scale / n, n being the inputs ("fan_in") or outputs ("fan_out") of the weight, or
    the mean of both ("fan_avg")."""

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal",
        seed: int | None = None, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        super().__init__(seed, dtype)
        kinds = ("normal", "truncated_normal", "untruncated_normal", "uniform")
        if mode not in ("fan_in", "fan_out", "fan_avg") or distribution not in kinds or scale <= 0:
            raise ValueError(
                f"scale={scale!r}, mode={mode!r}, distribution={distribution!r}: scale must be "
                f"above 0, mode 'fan_in', 'fan_out' or 'fan_avg', distribution one of {kinds}"
            )
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def _distribution(self, shape: list[int]) -> Distribution:
        kind = "truncated_normal" if self.distribution == "normal" else self.distribution
        return variance_scaling(shape, self.scale, self.mode, kind)


class uniform_unit_scaling_initializer(variance_scaling_initializer):  # noqa: N801
    """Even, as wide as keeps the scale of what comes in."""

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = "float32"
                 ) -> None:  # fmt: skip
        super().__init__(factor * factor, "fan_in", "uniform", seed, dtype)
