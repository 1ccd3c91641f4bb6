"""Columns of numbers: numeric_column, bucketized_column."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from .._dispatch import convert
from ..ops import array, math
from ..ops.embedding import SparseTensor
from ..ops.parsing import FixedLenFeature
from ..ops.sorting import searchsorted
from ._base import CategoricalColumn, DenseColumn, Features, Variables, as_float


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """Numbers as they are."""

    key: str
    shape: tuple[int, ...]
    default_value: Any
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return self.shape

    def transformed(self, features: Features) -> Any:
        value = features.get(self.key)
        if isinstance(value, SparseTensor):
            raise ValueError(
                "The corresponding Tensor of numerical column must be a Tensor. SparseTensor is "
                f"not supported. key: {self.key}"
            )
        if self.normalizer_fn is not None:
            value = convert(self.normalizer_fn(value))
        return as_float(value)

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        return features.get(self)


def _default_of(key: str, shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """A default as nested tuples of the shape, or one value; TypeError for what does not fit."""
    if value is None:
        return None
    found = np.asarray(value)
    fits = found.dtype.kind in "iu" or (found.dtype.kind == "f" and dtype.kind == "f")
    if not fits:
        raise TypeError(f"default_value must be compatible with {dtype}. column_name: {key}")
    if found.ndim == 0:
        return found.item()
    if found.shape != shape:
        raise ValueError(
            f"The shape of default_value must be equal to given shape. default_value: {value}, "
            f"shape: {shape}, column_name: {key}"
        )
    return _tuples(found.tolist())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def numeric_column(
    key: str, shape: int | Sequence[int] = (1,), default_value: Any = None, dtype: Any = "float32",
    normalizer_fn: Callable[[Any], Any] | None = None,
) -> NumericColumn:  # fmt: skip
    """Numbers as they are (tf.feature_column.numeric_column): of the feature `key`, `shape` per
    example, float32 once they are used.

    default_value: what an example has that parse_example() finds without them; without one they are
        required. normalizer_fn: a function of the tensor, such as (x - 3.0) / 4.2, made before all
        else.
    """
    _check_key(key)
    extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    for extent in extents:
        if not isinstance(extent, (int, np.integer)):
            raise TypeError(f"shape dimensions must be integer. shape: {shape}, key: {key}")
        if extent < 1:
            raise ValueError(f"shape dimensions must be greater than 0. shape: {shape}, key: {key}")
    kind = dtypes.as_dtype(dtype)
    if kind.kind not in "fiu":
        raise ValueError(f"dtype must be convertible to float. dtype: {dtype}, key: {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    extents = tuple(int(extent) for extent in extents)
    default = _default_of(key, extents, default_value, kind)
    return NumericColumn(key, extents, default, kind, normalizer_fn)


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Got type {type(key)}: {key!r}.")


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """Between which boundaries numbers are."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.source_column.name}_bucketized"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.source_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (*self.source_column.shape, len(self.boundaries) + 1)

    @property
    def num_buckets(self) -> int:
        return (len(self.boundaries) + 1) * self.source_column.shape[0]

    def transformed(self, features: Features) -> Any:
        value = features.get(self.source_column)
        flat = array.reshape(value, [-1])
        edges = convert(np.array(self.boundaries, np.float32))
        found = searchsorted(edges, flat, side="right", out_type="int64")
        return array.reshape(found, [-1, *self.source_column.shape])

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        return array.one_hot(features.get(self), len(self.boundaries) + 1, dtype="float32")

    def ids_and_weights(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        # Each number of an example has buckets of its own.
        found = features.get(self)
        width, per_number = self.source_column.shape[0], len(self.boundaries) + 1
        flat = array.reshape(found, [-1])
        count = array.shape(flat, "int64")[0]
        places = array.range(convert(0, "int64"), count, convert(1, "int64"))
        rows, columns = math.floordiv(places, width), math.floormod(places, width)
        ids = math.add(flat, math.multiply(columns, per_number))
        extents = array.stack([math.floordiv(count, width), convert(width, "int64")], 0)
        return SparseTensor(array.stack([rows, columns], 1), ids, extents), None


def bucketized_column(source_column: Any, boundaries: Sequence[float]) -> BucketizedColumn:
    """Between which of the `boundaries` the numbers of a numeric_column are
    (tf.feature_column.bucketized_column): of boundaries (0., 1.), below 0., from 0. to below 1., or
    from 1. on. Dense it is a vector with a one for each number; it is categorical as well."""
    if not isinstance(source_column, NumericColumn):
        raise ValueError(
            f"source_column must be a column generated with numeric_column(). Given: "
            f"{source_column}"
        )
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    if not isinstance(boundaries, (list, tuple)) or not boundaries:
        raise ValueError("boundaries must not be empty: give a sorted list.")
    if any(a >= b for a, b in itertools.pairwise(boundaries)):
        raise ValueError("boundaries must be a sorted list.")
    return BucketizedColumn(source_column, tuple(boundaries))
