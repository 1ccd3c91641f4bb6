"""Columns of sequences: what each example has several of, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._dispatch import convert
from ..ops import array, math
from ..ops.embedding import SparseTensor
from ..ops.indexing import unsorted_segment_max
from ..ops.parsing import VarLenFeature
from ..ops.sparse import to_dense
from . import _categorical
from ._base import CategoricalColumn, FeatureColumn, Features, Variables, as_float, sparse_of
from ._numeric import numeric_column


def lengths_of(sparse: SparseTensor, per_step: int = 1) -> Any:
    """How many steps each row has, int64, of `per_step` values each."""
    indices = convert(sparse.indices)
    rows, steps = indices[:, 0], math.floordiv(indices[:, 1], per_step)
    count = array.reshape(convert(sparse.dense_shape)[0], [])
    found = unsorted_segment_max(math.add(steps, 1), rows, count)
    # Rows without any have the least number there is.
    return math.maximum(found, convert(0, found.dtype))


@dataclass(frozen=True)
class SequenceCategoricalColumn(CategoricalColumn):
    """Categories of which each is a step."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return self.categorical_column.name

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transformed(self, features: Features) -> Any:
        return features.get(self.categorical_column)

    def ids_and_weights(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        ids, weights = self.categorical_column.ids_and_weights(features)
        return _stepwise(ids), None if weights is None else _stepwise(weights)


def _stepwise(sparse: SparseTensor) -> SparseTensor:
    """[batch, steps] as [batch, steps, 1]; of more dimensions as it is."""
    extents = convert(sparse.dense_shape)
    if extents.shape is None or extents.shape[0] != 2:
        return sparse
    indices = convert(sparse.indices)
    return SparseTensor(
        array.concat([indices, array.zeros_like(indices[:, :1])], 1),
        sparse.values,
        array.concat([extents, convert([1], extents.dtype)], 0),
    )


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = "string"
) -> SequenceCategoricalColumn:
    """As categorical_column_with_hash_bucket(), each category a step."""
    return SequenceCategoricalColumn(
        _categorical.categorical_column_with_hash_bucket(key, hash_bucket_size, dtype)
    )


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """As categorical_column_with_identity(), each category a step."""
    return SequenceCategoricalColumn(
        _categorical.categorical_column_with_identity(key, num_buckets, default_value)
    )


def sequence_categorical_column_with_vocabulary_file(
    key: str, vocabulary_file: str, vocabulary_size: int | None = None, num_oov_buckets: int = 0,
    default_value: int | None = None, dtype: Any = "string",
) -> SequenceCategoricalColumn:  # fmt: skip
    """As categorical_column_with_vocabulary_file(), each category a step."""
    return SequenceCategoricalColumn(
        _categorical.categorical_column_with_vocabulary_file(
            key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
        )
    )


def sequence_categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Sequence[Any], dtype: Any = None, default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:  # fmt: skip
    """As categorical_column_with_vocabulary_list(), each category a step."""
    return SequenceCategoricalColumn(
        _categorical.categorical_column_with_vocabulary_list(
            key, vocabulary_list, dtype, default_value, num_oov_buckets
        )
    )


@dataclass(frozen=True)
class SequenceNumericColumn(FeatureColumn):
    """Numbers in steps."""

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: Any
    normalizer_fn: Callable[[Any], Any] | None

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self.dtype)}

    @property
    def num_elements(self) -> int:
        """How many numbers a step has."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def transformed(self, features: Features) -> SparseTensor:
        value = sparse_of(features.get(self.key), 0)
        return value if self.normalizer_fn is None else self.normalizer_fn(value)

    def make_variables(self, variables: Variables) -> None:
        """A column of numbers has none."""

    def sequence_tensor(self, features: Features, variables: Variables) -> tuple[Any, Any]:
        """[batch, steps, *shape], and how many steps each example has."""
        sparse = features.get(self)
        dense = as_float(to_dense(sparse, self.default_value))
        rows = array.shape(dense, "int64")[:1]
        target = array.concat([rows, convert([-1, *self.shape], "int64")], 0)
        extents = convert(sparse.dense_shape).shape
        flat = extents is not None and extents[0] == 2
        return array.reshape(dense, target), lengths_of(sparse, self.num_elements if flat else 1)


def sequence_numeric_column(
    key: str, shape: int | Sequence[int] = (1,), default_value: float = 0.0,
    dtype: Any = "float32", normalizer_fn: Callable[[Any], Any] | None = None,
) -> SequenceNumericColumn:  # fmt: skip
    """Numbers in steps of `shape` (tf.feature_column.sequence_numeric_column), filled up with
    `default_value`. normalizer_fn: a function of the SparseTensor."""
    like = numeric_column(key, shape, None, dtype, normalizer_fn)
    return SequenceNumericColumn(key, like.shape, default_value, like.dtype, normalizer_fn)
