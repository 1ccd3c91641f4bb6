"""Columns that make numbers of categories: embedding, shared embeddings, indicator."""

from __future__ import annotations

import math as _math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checkpoint, dtypes
from .._dispatch import convert
from ..ops import array, embedding, math
from ..ops.embedding import SparseTensor
from ..ops.indexing import boolean_mask, unsorted_segment_sum
from ._base import CategoricalColumn, DenseColumn, Features, Variables
from ._categorical import WeightedCategoricalColumn
from ._sequence import SequenceCategoricalColumn, lengths_of


@dataclass(frozen=True)
class _FromCheckpoint:
    """An initializer that takes a tensor of a checkpoint."""

    checkpoint: str
    tensor: str

    def __call__(self, shape: Sequence[int], dtype: Any = None, partition_info: Any = None) -> Any:
        found = checkpoint.load_variable(self.checkpoint, self.tensor)
        value = found.numpy() if hasattr(found, "numpy") else np.asarray(found)
        whole = tuple(shape if partition_info is None else partition_info.full_shape)
        if value.shape != whole:
            raise ValueError(
                f"tensor '{self.tensor}' of checkpoint '{self.checkpoint}' has shape "
                f"{value.shape}; the embedding has {whole}"
            )
        if partition_info is not None:
            begins = partition_info.var_offset
            value = value[tuple(slice(b, b + n) for b, n in zip(begins, shape))]
        return convert(value, dtype)


@dataclass(frozen=True)
class _Table:
    """What the rows of an embedding start as, and how they are looked up."""

    dimension: int
    combiner: str
    initializer: Any
    max_norm: float | None
    trainable: bool
    safe: bool

    @property
    def stddev(self) -> float:
        """The standard deviation of first values, where there is no initializer."""
        return 1 / _math.sqrt(self.dimension)

    def rows(self, name: str, table: Any, ids: SparseTensor, weights: SparseTensor | None) -> Any:
        """The rows of the categories of each example, combined."""
        rank = convert(ids.dense_shape).shape
        plain = not self.safe and rank is not None and rank[0] == 2
        look_up: Any = embedding.safe_embedding_lookup_sparse
        if plain:
            look_up = embedding.embedding_lookup_sparse
        return look_up(
            table, ids, weights, combiner=self.combiner, max_norm=self.max_norm,
            name=f"{name}_weights",
        )  # fmt: skip


def _table_of(
    where: str, dimension: int, combiner: str, initializer: Any, ckpt: str | None,
    tensor: str | None, max_norm: float | None, trainable: bool, safe: bool,
) -> _Table:  # fmt: skip
    """The arguments of an embedding, checked."""
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}: {where} needs at least 1.")
    if (ckpt is None) != (tensor is None):
        raise ValueError(
            "Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them."
        )
    if initializer is not None and not callable(initializer):
        raise ValueError(f"initializer must be callable if specified. {where}")
    if ckpt is not None and tensor is not None:
        initializer = _FromCheckpoint(ckpt, tensor)
    if combiner not in ("mean", "sqrtn", "sum"):
        raise ValueError(f"combiner is '{combiner}' in {where}; it must be mean, sqrtn or sum")
    return _Table(int(dimension), combiner, initializer, max_norm, bool(trainable), bool(safe))


class _Embedding(DenseColumn):
    """A dense column of the rows of a table."""

    categorical_column: CategoricalColumn
    table: _Table

    def table_in(self, variables: Variables) -> Any:
        """The variable."""
        raise NotImplementedError

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (self.table.dimension,)

    @property
    def dimension(self) -> int:
        """How many numbers a category has."""
        return self.table.dimension

    def transformed(self, features: Features) -> Any:
        return features.get(self.categorical_column)

    def make_variables(self, variables: Variables) -> None:
        self.table_in(variables)

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        _check_sequence(self, False)
        ids, weights = self.categorical_column.ids_and_weights(features)
        return self.table.rows(self.name, self.table_in(variables), ids, weights)

    def sequence_tensor(self, features: Features, variables: Variables) -> tuple[Any, Any]:
        """[batch, steps, dimension], and how many steps each example has."""
        _check_sequence(self, True)
        ids, weights = self.categorical_column.ids_and_weights(features)
        rows = self.table.rows(self.name, self.table_in(variables), ids, weights)
        return rows, lengths_of(ids)


def _check_sequence(column: Any, wanted: bool) -> None:
    """A ValueError when a column is not of the kind that a layer takes."""
    inner = column.categorical_column
    if isinstance(inner, SequenceCategoricalColumn) is wanted:
        return
    fix = (
        "use one of sequence_categorical_column_with_*" if wanted else
        "use a categorical_column_with_* that is no sequence, or SequenceFeatures in the place of "
        "DenseFeatures"
    )  # fmt: skip
    raise ValueError(
        f"In column {column.name}: categorical_column must {'' if wanted else 'not '}be of type "
        f"SequenceCategoricalColumn; {fix}. Given: {inner}"
    )


@dataclass(frozen=True)
class EmbeddingColumn(_Embedding):
    """A vector for each category, from a table of its own."""

    categorical_column: CategoricalColumn
    table: _Table

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"

    def table_in(self, variables: Variables) -> Any:
        shape = (self.categorical_column.num_buckets, self.table.dimension)
        return variables.table(
            self, "embedding_weights", shape, self.table.initializer, self.table.stddev,
            self.table.trainable,
        )  # fmt: skip


def embedding_column(
    categorical_column: CategoricalColumn, dimension: int, combiner: str = "mean",
    initializer: Callable[..., Any] | None = None, ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None, max_norm: float | None = None, trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:  # fmt: skip
    """A vector of `dimension` numbers for the categories of each example
    (tf.feature_column.embedding_column): their rows of a table, combined by "mean", "sqrtn" or
    "sum". Rows alone are read and updated. An example without categories has zeros.

    initializer: of the table, a function of (shape, dtype); truncated normal of the standard
        deviation 1 / sqrt(dimension) if absent. ckpt_to_load_from, tensor_name_in_ckpt: or what it
        has in a checkpoint. max_norm: rows are shortened to it.
    use_safe_embedding_lookup: False: examples at the end that have no categories are left out.
    """
    _need_categorical(categorical_column)
    where = f"embedding of column '{categorical_column.name}'"
    table = _table_of(
        where, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm,
        trainable, use_safe_embedding_lookup,
    )  # fmt: skip
    return EmbeddingColumn(categorical_column, table)


def _need_categorical(column: Any) -> None:
    if not isinstance(column, CategoricalColumn):
        raise ValueError(
            f"Unsupported input type. Input must be a CategoricalColumn. Given: {column}"
        )


class SharedTable:
    """A table that several columns look up in: one variable in each graph or model."""

    def __init__(self, name: str, num_buckets: int) -> None:
        self.name = name
        self.num_buckets = num_buckets
        self._made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def get(self, owner: Any, make: Callable[[], Any]) -> Any:
        """The table for `owner`, which make() makes when there is none yet."""
        if owner not in self._made:
            self._made[owner] = make()
        return self._made[owner]


@dataclass(frozen=True)
class SharedEmbeddingColumn(_Embedding):
    """A vector for each category, from a table that other columns have too."""

    categorical_column: CategoricalColumn
    table: _Table
    shared: SharedTable

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def scope_name(self) -> str:
        return self.shared.name

    def table_in(self, variables: Variables) -> Any:
        shape = (self.shared.num_buckets, self.table.dimension)
        return variables.table(
            self, "embedding_weights", shape, self.table.initializer, self.table.stddev,
            self.table.trainable,
        )  # fmt: skip


def shared_embeddings(
    categorical_columns: Sequence[CategoricalColumn], dimension: int, combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None, ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None, max_norm: float | None = None, trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[SharedEmbeddingColumn]:  # fmt: skip
    """As embedding_column() for several columns that share a table (tf.feature_column.
    shared_embeddings, of TensorFlow 1 shared_embedding_columns): they are of one kind and have
    equally many buckets. The variable is in a scope of the name that is given."""
    columns = list(categorical_columns)
    for column in columns:
        _need_categorical(column)
    if not columns:
        raise ValueError("categorical_columns is empty: give the columns that share the table")
    ordered = sorted(columns, key=lambda column: column.name)
    first = ordered[0]
    for column in ordered[1:]:
        if _kind(column) is not _kind(first):
            raise ValueError(
                "To use shared_embedding_column, all categorical_columns must have the same type, "
                f"or be weighted_categorical_column or sequence column of the same type. Given "
                f"column: {first} of type: {type(first)} does not match given column: {column} of "
                f"type: {type(column)}"
            )
        if column.num_buckets != first.num_buckets:
            raise ValueError(
                "To use shared_embedding_column, all categorical_columns must have the same number "
                f"of buckets. Given column: {first} with buckets: {first.num_buckets} does not "
                f"match column: {column} with buckets: {column.num_buckets}"
            )
    name = shared_embedding_collection_name
    if not name:
        name = "_".join(column.name for column in ordered) + "_shared_embedding"
    table = _table_of(
        f"shared embedding '{name}'", dimension, combiner, initializer, ckpt_to_load_from,
        tensor_name_in_ckpt, max_norm, trainable, use_safe_embedding_lookup,
    )  # fmt: skip
    shared = SharedTable(name, first.num_buckets)
    return [SharedEmbeddingColumn(column, table, shared) for column in columns]


def _kind(column: Any) -> type:
    """The type of a column, without its weights."""
    while isinstance(column, (WeightedCategoricalColumn, SequenceCategoricalColumn)):
        column = column.categorical_column
    return type(column)


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """How often each category is there."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (1, self.categorical_column.num_buckets)

    def transformed(self, features: Features) -> Any:
        ids, weights = self.categorical_column.ids_and_weights(features)
        values, depth = convert(ids.values), self.categorical_column.num_buckets
        rows, count, extents = embedding._places_of(ids)
        fits = math.logical_and(math.greater_equal(values, 0), math.less(values, depth))
        if weights is None:
            amounts = array.ones_like(values, dtype=dtypes.float32)
        else:
            amounts = convert(weights.values)
        places = math.add(math.multiply(rows, depth), values)
        summed = unsorted_segment_sum(
            boolean_mask(amounts, fits), boolean_mask(places, fits),
            math.multiply(array.reshape(count, []), depth),
        )  # fmt: skip
        if extents is None:
            return array.reshape(summed, [-1, depth])
        target = array.concat([extents, convert([depth], extents.dtype)], 0)
        return array.reshape(summed, target)

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        _check_sequence(self, False)
        return features.get(self)

    def sequence_tensor(self, features: Features, variables: Variables) -> tuple[Any, Any]:
        """[batch, steps, num_buckets], and how many steps each example has."""
        _check_sequence(self, True)
        ids, _ = self.categorical_column.ids_and_weights(features)
        return features.get(self), lengths_of(ids)


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """How often each category is in an example, or the sum of its weights there
    (tf.feature_column.indicator_column): a vector of num_buckets numbers."""
    _need_categorical(categorical_column)
    return IndicatorColumn(categorical_column)
