"""How many parts a variable is cut into (tf.compat.v1.fixed_size_partitioner and its kin):
functions of (shape, dtype) that give a number of parts for each dimension, 1 for all but `axis`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .dtypes import as_dtype, string

#: Called with `shape`, a sequence of known extents, and `dtype`, by keyword.
Partitioner = Callable[..., Sequence[int]]


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """`num_shards` parts, or as many as there are rows along `axis` if these are fewer."""
    _check_positive("num_shards", num_shards)

    def partitioner(shape: Sequence[int], dtype: Any) -> list[int]:
        extents = _extents(shape, axis)
        return _along(axis, extents, min(num_shards, extents[axis]))

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Partitioner:  # fmt: skip
    """As many parts as keep each within `max_shard_bytes`, at most `max_shards`; at least a row
    each. A string counts as `bytes_per_string_element`."""
    _check_positive("max_shard_bytes", max_shard_bytes)
    _check_positive("bytes_per_string_element", bytes_per_string_element)
    if max_shards is not None:
        _check_positive("max_shards", max_shards)

    def partitioner(shape: Sequence[int], dtype: Any) -> list[int]:
        extents = _extents(shape, axis)
        size = _bytes(extents, dtype, bytes_per_string_element)
        if size == 0:
            return _along(axis, extents, 1)
        rows = max(1, max_shard_bytes * extents[axis] // size)
        parts = math.ceil(extents[axis] / rows)
        return _along(axis, extents, parts if max_shards is None else min(parts, max_shards))

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:  # fmt: skip
    """As many parts of `min_slice_size` bytes as the variable has, at most `max_partitions` and not
    more than there are rows. A string counts as `bytes_per_string_element`."""
    _check_positive("max_partitions", max_partitions)
    _check_positive("min_slice_size", min_slice_size)
    _check_positive("bytes_per_string_element", bytes_per_string_element)

    def partitioner(shape: Sequence[int], dtype: Any) -> list[int]:
        extents = _extents(shape, axis)
        size = _bytes(extents, dtype, bytes_per_string_element)
        wanted = -(-size // min_slice_size)
        return _along(axis, extents, max(1, min(extents[axis], max_partitions, wanted)))

    return partitioner


def _check_positive(what: str, value: int) -> None:
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
