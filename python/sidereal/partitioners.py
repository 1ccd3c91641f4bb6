"""How many parts a variable is cut into: classes (tf.distribute.experimental.partitioners), and the
functions of TensorFlow 1 that make them (tf.compat.v1.fixed_size_partitioner and its kin). All give
a number of parts for each dimension, 1 for all but `axis`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from .dtypes import as_dtype, string

__all__ = [
    "FixedShardsPartitioner", "MaxSizePartitioner", "MinSizePartitioner", "PartitionFunction",
    "Partitioner", "fixed_size_partitioner", "min_max_variable_partitioner",
    "variable_axis_size_partitioner",
]  # fmt: skip

#: Called with `shape`, a sequence of known extents, and `dtype`, by keyword.
PartitionFunction = Callable[..., Sequence[int]]


class Partitioner:
    """Says how many parts a variable is cut into (tf.distribute.experimental.partitioners). Those
    of other rules are subclasses with a __call__ of their own."""

    def __call__(self, shape: Sequence[int | None], dtype: Any, axis: int = 0) -> list[int]:
        """The number of parts by dimension. Errors: ValueError for a shape that is not known in
        full, or that has no such axis."""
        raise NotImplementedError


class FixedShardsPartitioner(Partitioner):
    """`num_shards` parts, or as many as there are rows along the axis if these are fewer."""

    def __init__(self, num_shards: int) -> None:
        _check_positive(num_shards=num_shards)
        self._num_shards = num_shards

    def __call__(self, shape: Sequence[int | None], dtype: Any, axis: int = 0) -> list[int]:
        extents = _extents(shape, axis)
        return _along(axis, extents, min(self._num_shards, extents[axis]))


class MinSizePartitioner(Partitioner):
    """As many parts of `min_shard_bytes` as the variable has, at most `max_shards` and not more
    than there are rows. A string counts as `bytes_per_string`."""

    def __init__(
        self, min_shard_bytes: int = 256 << 10, max_shards: int = 1, bytes_per_string: int = 16
    ) -> None:
        _check_positive(
            min_shard_bytes=min_shard_bytes, max_shards=max_shards,
            bytes_per_string=bytes_per_string,
        )  # fmt: skip
        self._min_shard_bytes = min_shard_bytes
        self._max_shards = max_shards
        self._bytes_per_string = bytes_per_string

    def __call__(self, shape: Sequence[int | None], dtype: Any, axis: int = 0) -> list[int]:
        extents = _extents(shape, axis)
        size = _bytes(extents, dtype, self._bytes_per_string)
        wanted = -(-size // self._min_shard_bytes)
        return _along(axis, extents, max(1, min(extents[axis], self._max_shards, wanted)))


class MaxSizePartitioner(Partitioner):
    """As many parts as keep each within `max_shard_bytes`, at most `max_shards`; at least a row
    each. A string counts as `bytes_per_string`."""

    def __init__(
        self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16
    ) -> None:
        _check_positive(max_shard_bytes=max_shard_bytes, bytes_per_string=bytes_per_string)
        if max_shards is not None:
            _check_positive(max_shards=max_shards)
        self._max_shard_bytes = max_shard_bytes
        self._max_shards = max_shards
        self._bytes_per_string = bytes_per_string

    def __call__(self, shape: Sequence[int | None], dtype: Any, axis: int = 0) -> list[int]:
        extents = _extents(shape, axis)
        size = _bytes(extents, dtype, self._bytes_per_string)
        if size == 0:
            return _along(axis, extents, 1)
        rows = max(1, self._max_shard_bytes * extents[axis] // size)
        parts = math.ceil(extents[axis] / rows)
        limit = parts if self._max_shards is None else self._max_shards
        return _along(axis, extents, min(parts, limit))


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> PartitionFunction:
    """A FixedShardsPartitioner of one axis."""
    return functools.partial(FixedShardsPartitioner(num_shards), axis=axis)


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> PartitionFunction:  # fmt: skip
    """A MaxSizePartitioner of one axis."""
    _check_positive(bytes_per_string_element=bytes_per_string_element)
    made = MaxSizePartitioner(max_shard_bytes, max_shards, bytes_per_string_element)
    return functools.partial(made, axis=axis)


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> PartitionFunction:  # fmt: skip
    """A MinSizePartitioner of one axis."""
    _check_positive(
        max_partitions=max_partitions, min_slice_size=min_slice_size,
        bytes_per_string_element=bytes_per_string_element,
    )  # fmt: skip
    made = MinSizePartitioner(min_slice_size, max_partitions, bytes_per_string_element)
    return functools.partial(made, axis=axis)


def _check_positive(**values: int) -> None:
    for what, value in values.items():
        if value < 1:
            raise ValueError(f"{what} must be positive: {value}")


def _extents(shape: Sequence[int | None], axis: int) -> list[int]:
    """The shape, when it is known and has the axis."""
    if axis < 0 or axis >= len(shape):
        raise ValueError(f"Cannot partition a variable of shape {tuple(shape)} along axis {axis}")
    known = [extent for extent in shape if extent is not None and extent >= 0]
    if len(known) < len(shape):
        raise ValueError(f"shape is not fully defined: {tuple(shape)}")
    return known


def _bytes(extents: list[int], dtype: Any, of_string: int) -> int:
    kind = as_dtype(dtype)
    return math.prod(extents) * (of_string if kind is string else kind.itemsize)


def _along(axis: int, extents: list[int], parts: int) -> list[int]:
    return [parts if i == axis else 1 for i in range(len(extents))]
