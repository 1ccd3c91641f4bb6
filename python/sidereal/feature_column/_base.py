"""What feature columns share: their kinds, and the features that they are asked of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .. import dtypes
from .._dispatch import convert
from ..ops import array, math
from ..ops._arguments import index_tensor
from ..ops.embedding import SparseTensor
from ..ops.ragged import RaggedTensor
from ..ops.sparse import without


class Variables(Protocol):
    """Who makes the variables of columns: scopes of sidereal.v1, or a layer."""

    def table(
        self, column: Any, name: str, shape: Sequence[int], initializer: Any, stddev: float,
        trainable: bool,
    ) -> Any:  # fmt: skip
        """The table of a column, the same at every call. Without an initializer it starts with
        numbers of a normal distribution of `stddev`, none beyond two of these."""


class Features:
    """Tensors by key, and what columns make of them, each once."""

    def __init__(self, features: Mapping[str, Any]) -> None:
        if not isinstance(features, Mapping):
            raise ValueError(
                f"features are a dict of tensors by key; given is a {type(features).__name__}"
            )
        self._given = features
        self._made: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """The tensor of a key, [batch, ...] with at least two dimensions; of a column what it makes
        of the features."""
        if key not in self._made:
            if isinstance(key, FeatureColumn):
                self._made[key] = key.transformed(self)
            else:
                self._made[key] = self._raw(key)
        return self._made[key]

    def _raw(self, key: str) -> Any:
        if key not in self._given:
            raise ValueError(
                f"Feature {key} is not in features dictionary, which has: "
                f"{', '.join(map(str, self._given))}."
            )
        value = self._given[key]
        if isinstance(value, RaggedTensor):
            value = value.to_sparse()
        if isinstance(value, SparseTensor):
            return _of_rank_2(
                SparseTensor(
                    as_int64(index_tensor(value.indices)),
                    convert(value.values),
                    as_int64(index_tensor(value.dense_shape)),
                )
            )
        value = convert(value)
        if value.shape is None:
            return value
        if len(value.shape) == 0:
            raise ValueError(f"Feature (key: {key}) cannot have rank 0: it is of one example only.")
        return array.expand_dims(value, -1) if len(value.shape) == 1 else value


def _of_rank_2(value: SparseTensor) -> SparseTensor:
    extents, indices = value.dense_shape, value.indices
    if extents.shape is None or extents.shape[0] != 1:
        return value
    return SparseTensor(
        array.concat([indices, array.zeros_like(indices)], 1),
        value.values,
        array.concat([extents, array.ones_like(extents)], 0),
    )


class FeatureColumn:
    """Says what is made of a feature. Columns of equal arguments are equal."""

    @property
    def name(self) -> str:
        """Tells the column apart from others; variables and outputs are called after it."""
        raise NotImplementedError

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """What parse_example() has to read for the column."""
        raise NotImplementedError

    @property
    def scope_name(self) -> str:
        """Its name as one of a scope of variables."""
        return re.sub(r"[^A-Za-z0-9_.\-]", "_", self.name)

    def transformed(self, features: Features) -> Any:
        """What the column makes of features, without variables."""
        raise NotImplementedError


class DenseColumn(FeatureColumn):
    """A column that gives numbers, a tensor of one shape per example."""

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """Of the numbers of one example."""
        raise NotImplementedError

    @property
    def num_elements(self) -> int:
        """How many numbers an example has."""
        return int(np.prod(self.variable_shape, dtype=np.int64))

    def make_variables(self, variables: Variables) -> None:
        """Makes the variables of the column, if there are some."""

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        """[batch, *variable_shape] of float32."""
        raise NotImplementedError


class CategoricalColumn(FeatureColumn):
    """A column that gives each example some numbers below `num_buckets`."""

    @property
    def num_buckets(self) -> int:
        """How many numbers there can be."""
        raise NotImplementedError

    def ids_and_weights(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        """The categories of each row, and the weights of these if there are some."""
        return features.get(self), None


def sparse_of(value: Any, ignored: Any = None) -> SparseTensor:
    """A feature as a SparseTensor: of a tensor what is not `ignored`, which by default is "" or
    -1."""
    if isinstance(value, SparseTensor):
        return value
    if ignored is None:
        ignored = "" if value.dtype.name == "string" else -1
    return without(value, ignored)


def kind_of(value: Any) -> str:
    """Whether values are "strings", "integers" or other "numbers"."""
    dtype = value.values.dtype if isinstance(value, SparseTensor) else value.dtype
    if dtype.name == "string":
        return "strings"
    return "integers" if dtype.kind in "iu" else "numbers"


def check_kind(where: str, value: Any, dtype: Any) -> None:
    """A ValueError for values that are not of the kind of `dtype`, strings or integers."""
    wanted = "strings" if dtype.name == "string" else "integers"
    if kind_of(value) != wanted:
        raise ValueError(
            f"Column dtype and SparseTensors dtype must be compatible: column '{where}' is of "
            f"{wanted}, the feature of {kind_of(value)}."
        )


def each_value(sparse: SparseTensor, find: Callable[[Any], Any]) -> SparseTensor:
    """A SparseTensor with other values at the same places."""
    return SparseTensor(sparse.indices, find(convert(sparse.values)), sparse.dense_shape)


def as_int64(values: Any) -> Any:
    """Integers of 64 bits."""
    return values if values.dtype == dtypes.int64 else math.cast(values, "int64")


def as_float(values: Any) -> Any:
    """Numbers in float32."""
    return values if values.dtype == dtypes.float32 else math.cast(values, "float32")


def string_or_int(dtype: Any, where: str) -> Any:
    """A dtype of strings or integers; else a ValueError."""
    made = dtypes.as_dtype(dtype)
    if made.name != "string" and made.kind not in "iu":
        raise ValueError(f"column '{where}': dtype must be string or integer, not {made.name}")
    return made


def checked_columns(columns: Any) -> list[Any]:
    """Columns, given as one or several: none twice, and none of another kind."""
    if isinstance(columns, FeatureColumn):
        columns = [columns]
    if isinstance(columns, Mapping):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    if isinstance(columns, Iterable):
        columns = list(columns)
    else:
        raise ValueError(f"feature_columns are a list of columns, not {columns!r}")
    names: dict[str, Any] = {}
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"Items of feature_columns must be a FeatureColumn. Given (type {type(column)}): "
                f"{column}."
            )
        if column.name in names:
            raise ValueError(
                f"Duplicate feature column name found for columns: {column} and "
                f"{names[column.name]}: leave one of them out, or give it a feature of its own."
            )
        names[column.name] = column
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    return columns


def checked_dense(columns: Any) -> list[DenseColumn]:
    """Columns in the order of their names, all of which are dense."""
    found = checked_columns(columns)
    for column in found:
        if not isinstance(column, DenseColumn):
            raise ValueError(
                "Items of feature_columns must be a DenseColumn. You can wrap a categorical column "
                f"with an embedding_column or indicator_column. Given: {column}"
            )
    return sorted(found, key=lambda column: column.name)


def flat_rows(column: DenseColumn, tensor: Any) -> Any:
    """What a dense column gives, as a row per example."""
    return array.reshape(tensor, [-1, column.num_elements])
