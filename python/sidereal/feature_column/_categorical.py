"""Columns of categories: by hash, by vocabulary, by their own numbers, weighted, crossed."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from .._dispatch import convert
from ..lookup import (
    KeyValueTensorInitializer,
    StaticHashTable,
    StaticVocabularyTable,
    TextFileIndex,
    TextFileInitializer,
)
from ..ops import array, math, strings
from ..ops.debugging import checked
from ..ops.embedding import SparseTensor
from ..ops.parsing import VarLenFeature
from ..ops.sparse import cross_hashed
from ._base import (
    CategoricalColumn,
    Features,
    as_float,
    as_int64,
    check_kind,
    each_value,
    kind_of,
    sparse_of,
    string_or_int,
)
from ._numeric import _check_key


class _OfKey(CategoricalColumn):
    """A column of one feature."""

    key: str

    @property
    def name(self) -> str:
        return self.key

    def _dtype(self) -> Any:
        return self.dtype  # type: ignore[attr-defined]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: VarLenFeature(self._dtype())}

    def transformed(self, features: Features) -> SparseTensor:
        return self.ids_of(sparse_of(features.get(self.key)))

    def ids_of(self, values: SparseTensor) -> SparseTensor:
        """Numbers of values."""
        raise NotImplementedError


@dataclass(frozen=True)
class HashedCategoricalColumn(_OfKey):
    """Numbers by hash."""

    key: str
    hash_bucket_size: int
    dtype: Any

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def ids_of(self, values: SparseTensor) -> SparseTensor:
        check_kind(self.key, values, self.dtype)
        return each_value(
            values,
            lambda each: strings.to_hash_bucket_fast(
                strings.as_string(each), self.hash_bucket_size
            ),
        )


def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = "string"
) -> HashedCategoricalColumn:
    """Numbers by the hash of strings or integers (tf.feature_column.
    categorical_column_with_hash_bucket): FarmHash of the text modulo `hash_bucket_size`, the same
    numbers as TensorFlow's. In tensors "" and -1 stand for nothing."""
    if hash_bucket_size is None:
        raise ValueError(f"hash_bucket_size must be set. key: {key}")
    if hash_bucket_size < 1:
        raise ValueError(
            f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}"
        )
    _check_key(key)
    return HashedCategoricalColumn(key, int(hash_bucket_size), string_or_int(dtype, key))


class _Vocabulary(_OfKey):
    """A column of known values. What is not known gets one of some numbers behind these by its
    hash, or the default."""

    dtype: Any
    default_value: int
    num_oov_buckets: int

    def _pairs(self) -> KeyValueTensorInitializer:
        raise NotImplementedError

    def _key_dtype(self) -> Any:
        return self.dtype if self.dtype.name == "string" else dtypes.int64

    @functools.cached_property
    def _table(self) -> Any:
        if self.num_oov_buckets:
            return StaticVocabularyTable(self._pairs(), self.num_oov_buckets)
        return StaticHashTable(self._pairs(), self.default_value)

    def ids_of(self, values: SparseTensor) -> SparseTensor:
        check_kind(self.key, values, self.dtype)
        table = self._table
        return each_value(
            values,
            lambda each: table.lookup(each if each.dtype.name == "string" else as_int64(each)),
        )


@dataclass(frozen=True)
class VocabularyListCategoricalColumn(_Vocabulary):
    """Numbers by a list."""

    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: Any
    default_value: int
    num_oov_buckets: int

    @property
    def num_buckets(self) -> int:
        return len(self.vocabulary_list) + self.num_oov_buckets

    def _pairs(self) -> KeyValueTensorInitializer:
        tokens: Any = list(self.vocabulary_list)
        if self.dtype.name != "string":
            tokens = np.array(tokens, np.int64)
        return KeyValueTensorInitializer(tokens, np.arange(len(tokens), dtype=np.int64))


def _check_oov(key: str, default_value: Any, num_oov_buckets: int | None) -> tuple[int, int]:
    if num_oov_buckets:
        if default_value not in (None, -1):
            raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
        if num_oov_buckets < 0:
            raise ValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")
    return -1 if default_value is None else int(default_value), int(num_oov_buckets or 0)


def categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Sequence[Any], dtype: Any = None, default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyListCategoricalColumn:  # fmt: skip
    """The places of strings or integers in a list (tf.feature_column.
    categorical_column_with_vocabulary_list). Others have `default_value`, -1 being nothing, or by
    their hash one of `num_oov_buckets` numbers behind the list."""
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise ValueError(f"vocabulary_list must be non-empty, column_name: {key}")
    _check_key(key)
    tokens = tuple(
        each.decode() if isinstance(each, bytes) else each
        for each in (each.item() if isinstance(each, np.generic) else each
                     for each in vocabulary_list)
    )  # fmt: skip
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"Duplicate keys in vocabulary_list {tokens}, column_name: {key}")
    default, buckets = _check_oov(key, default_value, num_oov_buckets)
    found = string_or_int(np.asarray(tokens).dtype, f"{key} vocabulary")
    wanted = found if dtype is None else string_or_int(dtype, key)
    if (wanted.name == "string") != (found.name == "string"):
        raise ValueError(
            f"dtype {wanted} and vocabulary dtype {found} do not match, column_name: {key}"
        )
    return VocabularyListCategoricalColumn(key, tokens, wanted, default, buckets)


@dataclass(frozen=True)
class VocabularyFileCategoricalColumn(_Vocabulary):
    """Numbers by the lines of a file."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    num_oov_buckets: int
    dtype: Any
    default_value: int

    @property
    def num_buckets(self) -> int:
        return self.vocabulary_size + self.num_oov_buckets

    def _pairs(self) -> KeyValueTensorInitializer:
        return TextFileInitializer(
            self.vocabulary_file, self._key_dtype(), TextFileIndex.WHOLE_LINE, "int64",
            TextFileIndex.LINE_NUMBER, self.vocabulary_size,
        )  # fmt: skip


def categorical_column_with_vocabulary_file(
    key: str, vocabulary_file: str | os.PathLike[str], vocabulary_size: int | None = None,
    dtype: Any = "string", default_value: int | None = None, num_oov_buckets: int = 0,
) -> VocabularyFileCategoricalColumn:  # fmt: skip
    """As categorical_column_with_vocabulary_list(), of the first `vocabulary_size` lines of a file
    (tf.feature_column.categorical_column_with_vocabulary_file), or of all. The file is read when
    the column is first used, on the client; without a size now, to count its lines."""
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file in {key}.")
    _check_key(key)
    path = os.fspath(vocabulary_file)
    if vocabulary_size is None:
        try:
            with open(path, "rb") as file:
                vocabulary_size = sum(1 for _ in file)
        except FileNotFoundError:
            raise ValueError(f"vocabulary_file in {key} does not exist: {path}") from None
    if vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}: {vocabulary_size}.")
    default, buckets = _check_oov(key, default_value, num_oov_buckets)
    return VocabularyFileCategoricalColumn(
        key, path, int(vocabulary_size), buckets, string_or_int(dtype, key), default
    )


@dataclass(frozen=True)
class IdentityCategoricalColumn(_OfKey):
    """Numbers that are given."""

    key: str
    number_buckets: int
    default_value: int | None

    @property
    def num_buckets(self) -> int:
        return self.number_buckets

    def _dtype(self) -> Any:
        return dtypes.int64

    def ids_of(self, values: SparseTensor) -> SparseTensor:
        if kind_of(values) != "integers":
            raise ValueError(
                f"Invalid input, not integer. column '{self.key}' got {kind_of(values)}"
            )
        return each_value(values, lambda each: self._in_range(as_int64(each)))

    def _in_range(self, ids: Any) -> Any:
        fits = math.logical_and(math.greater_equal(ids, 0), math.less(ids, self.number_buckets))
        if self.default_value is None:
            message = (
                f"column '{self.key}': numbers must be from 0 to {self.number_buckets - 1}, as "
                "there is no default_value; they are"
            )
            return checked(ids, math.reduce_all(fits), message, ids)
        default = convert(self.default_value, "int64")
        return math.where(fits, ids, math.add(array.zeros_like(ids), default))


def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityCategoricalColumn:
    """Integers that are numbers of categories themselves (tf.feature_column.
    categorical_column_with_identity). Those outside of [0, num_buckets) are `default_value`;
    without one, InvalidArgumentError when a step runs. In tensors -1 stands for nothing."""
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(
            f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}"
        )
    _check_key(key)
    return IdentityCategoricalColumn(key, int(num_buckets), default_value)


@dataclass(frozen=True)
class WeightedCategoricalColumn(CategoricalColumn):
    """Categories with weights."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: Any

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec = self.categorical_column.parse_example_spec
        if self.weight_feature_key in spec:
            raise ValueError(f"Parse config {spec} already exists for {self.weight_feature_key}.")
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    @property
    def num_buckets(self) -> int:
        return self.categorical_column.num_buckets

    def transformed(self, features: Features) -> Any:
        weights = features.get(self.weight_feature_key)
        values = weights.values if isinstance(weights, SparseTensor) else weights
        if (values.dtype.kind == "f") != (self.dtype.kind == "f"):
            raise ValueError(
                f"Bad dtype: column '{self.name}' has weights of {self.dtype}, the feature is of "
                f"{values.dtype}"
            )
        return each_value(sparse_of(weights, 0), as_float)

    def ids_and_weights(self, features: Features) -> tuple[SparseTensor, SparseTensor | None]:
        ids, _ = self.categorical_column.ids_and_weights(features)
        return ids, features.get(self)


def weighted_categorical_column(
    categorical_column: CategoricalColumn, weight_feature_key: str, dtype: Any = "float32"
) -> WeightedCategoricalColumn:
    """The categories of another column, each weighted by a number of the feature
    `weight_feature_key`, which has the same places (tf.feature_column.
    weighted_categorical_column). In a tensor of weights 0 stands for nothing."""
    if not isinstance(categorical_column, CategoricalColumn):
        raise ValueError(f"categorical_column is {categorical_column!r}, which is no such column")
    kind = dtypes.as_dtype(dtype)
    if kind.kind not in "fiu":
        raise ValueError(f"dtype {dtype} is not convertible to float.")
    return WeightedCategoricalColumn(categorical_column, weight_feature_key, kind)


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """What several features are together, by hash."""

    keys: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None

    def _leaves(self) -> list[Any]:
        found: list[Any] = []
        for key in self.keys:
            found += key._leaves() if isinstance(key, CrossedColumn) else [key]
        return found

    @property
    def name(self) -> str:
        names = [key if isinstance(key, str) else key.name for key in self._leaves()]
        return "_X_".join(sorted(names))

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = {}
        for key in self.keys:
            if isinstance(key, str):
                spec[key] = VarLenFeature(dtypes.string)
            else:
                spec.update(key.parse_example_spec)
        return spec

    @property
    def num_buckets(self) -> int:
        return self.hash_bucket_size

    def transformed(self, features: Features) -> SparseTensor:
        inputs = []
        for key in self._leaves():
            if isinstance(key, str):
                value, what = features.get(key), f"feature '{key}'"
                if kind_of(value) == "numbers":
                    raise ValueError(
                        f"column '{self.name}' crosses strings and integers; {what} is of neither"
                    )
            else:
                value, weights = key.ids_and_weights(features)
                if weights is not None:
                    raise ValueError(
                        "crossed_column does not support weight_tensor, but the given column "
                        f"populates weight_tensor. Given column: {key.name}"
                    )
            inputs.append(value)
        return cross_hashed(inputs, self.hash_bucket_size, self.hash_key)


def crossed_column(
    keys: Sequence[Any], hash_bucket_size: int, hash_key: int | None = None
) -> CrossedColumn:
    """Numbers below `hash_bucket_size` for what several features are together
    (tf.feature_column.crossed_column), of every way to take one value of each; the same numbers as
    TensorFlow's. keys: of features of strings or integers, or categorical columns, not those by
    hash. In a tensor every element counts."""
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if not isinstance(key, (str, CategoricalColumn)):
            raise ValueError(
                "Unsupported key type. All keys must be either string, or categorical column "
                f"except HashedCategoricalColumn. Given: {key}"
            )
        if isinstance(key, HashedCategoricalColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing, as hashing "
                "before crossing will increase probability of collision. Instead, use the feature "
                f"name as a string. Given: {key}"
            )
    return CrossedColumn(tuple(keys), int(hash_bucket_size), hash_key)
