"""Lookup tables: sidereal.lookup, with TensorFlow's names (tf.lookup).

    table = sr.lookup.StaticHashTable(
        sr.lookup.KeyValueTensorInitializer(["red", "green"], [0, 1]), default_value=-1)
    table.lookup(sr.constant(["green", "blue"]))    # [1, -1]

Static tables are constants of the functions and graphs that use them, and are saved with them.
Mutable ones are shared by name by what runs in this process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import dtypes, errors, ops
from ._dispatch import apply, convert, state, to_tensor
from ._resources import Resource, component_attrs, done
from .ops.embedding import SparseTensor

__all__ = [
    "KeyValueTensorInitializer", "StaticHashTable", "StaticVocabularyTable", "TextFileIndex",
    "TextFileInitializer", "experimental",
]


class KeyValueTensorInitializer:
    """Keys and their values (tf.lookup.KeyValueTensorInitializer): keys [n] of string, int32 or
    int64, none twice; values [n]."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        self.keys = to_tensor(keys, key_dtype)
        self.values = to_tensor(values, value_dtype)
        if self.keys.ndim != 1 or self.keys.shape != self.values.shape:
            raise ValueError(
                f"keys of shape {self.keys.shape} with values of shape {self.values.shape}; give "
                "two vectors of one length"
            )


class TextFileIndex:
    """What of a line is meant (tf.lookup.TextFileIndex)."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class TextFileInitializer(KeyValueTensorInitializer):
    """Keys and values from the lines of a file (tf.lookup.TextFileInitializer). An index is a
    column between `delimiter`s, or one of TextFileIndex.

    Errors: NotFoundError for a file that is not there; InvalidArgumentError naming the line that
    lacks a column, is no number, or (vocab_size) is missing."""

    def __init__(
        self, filename: Any, key_dtype: Any, key_index: int, value_dtype: Any, value_index: int,
        vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        path = os.fspath(filename)
        try:
            with open(path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            raise errors.NotFoundError(f"there is no file '{path}'") from None
        if lines and not lines[-1]:
            lines.pop()
        if vocab_size is not None:
            if len(lines) < vocab_size:
                raise errors.InvalidArgumentError(
                    f"'{path}' has {len(lines)} lines; vocab_size is {vocab_size}"
                )
            lines = lines[:vocab_size]
        lines = [line.removesuffix(b"\r") for line in lines]
        cut = delimiter.encode()
        super().__init__(
            _column(path, lines, key_index, cut, key_dtype, 0),
            _column(path, lines, value_index, cut, value_dtype, value_index_offset),
        )


def _column(
    path: str, lines: list[bytes], index: int, delimiter: bytes, dtype: Any, offset: int
) -> Any:
    dtype = dtypes.as_dtype(dtype)
    if index == TextFileIndex.LINE_NUMBER:
        if dtype is dtypes.string:
            raise ValueError("line numbers are no strings; use int64")
        return to_tensor(np.arange(len(lines), dtype=dtype) + np.asarray(offset, dtype))
    texts = []
    for number, line in enumerate(lines):
        fields = [line] if index == TextFileIndex.WHOLE_LINE else line.split(delimiter)
        if index >= len(fields) or index < TextFileIndex.WHOLE_LINE:
            raise errors.InvalidArgumentError(
                f"'{path}' line {number + 1} has {len(fields)} columns; column {index} is asked for"
            )
        texts.append(fields[max(index, 0)])
    if dtype is dtypes.string:
        return to_tensor(np.array(texts, dtype=object).reshape(len(texts)), dtype)
    numbers = np.empty(len(texts), dtype)
    for number, text in enumerate(texts):
        try:
            numbers[number] = int(text) if dtype.kind in "iu" else float(text)
        except (ValueError, OverflowError):
            raise errors.InvalidArgumentError(
                f"'{path}' line {number + 1}: {text!r} is no {dtype.name}"
            ) from None
    return to_tensor(numbers)


def _each_value(keys: Any, find: Any) -> Any:
    """find() of the keys; of sparse ones, of those that are there."""
    if isinstance(keys, SparseTensor):
        return SparseTensor(keys.indices, find(keys.values), keys.dense_shape)
    return find(keys)


class StaticHashTable:
    """Values by key that never change (tf.lookup.StaticHashTable). `default_value` is for keys
    that are not there. Checkpoints have nothing of it."""

    def __init__(
        self, initializer: KeyValueTensorInitializer, default_value: Any, name: str | None = None
    ) -> None:
        self._keys = initializer.keys
        self._values = initializer.values
        self.name = name or "hash_table"
        self.default_value = to_tensor(default_value, self._values.dtype)
        if self.default_value.ndim != 0:
            raise ValueError(f"the default is of shape {self.default_value.shape}; give one value")
        with state.at_once():
            self.lookup(self._keys[:0])  # Finds wrong dtypes and keys that repeat.

    @property
    def key_dtype(self) -> Any:
        """Dtype of the keys."""
        return self._keys.dtype

    @property
    def value_dtype(self) -> Any:
        """Dtype of the values."""
        return self._values.dtype

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of `keys`, keys.shape; a SparseTensor for one. InvalidArgumentError for keys
        of another dtype."""

        def find(keys: Any) -> Any:
            inputs = (self._keys, self._values, convert(keys, self.key_dtype), self.default_value)
            return apply("StaticTableFind", inputs, name=name)

        return _each_value(keys, find)

    __getitem__ = lookup

    def _trackable_children(self) -> dict[str, Any]:
        return {}

    def size(self, name: str | None = None) -> Any:
        """How many keys there are, int64 []."""
        return convert(np.int64(self._keys.shape[0]))

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """(keys, values)."""
        return convert(self._keys), convert(self._values)


class StaticVocabularyTable:
    """Numbers of strings or integers: those of `initializer` (values 0 to n - 1), and for all
    others n + a hash in [0, num_oov_buckets) (tf.lookup.StaticVocabularyTable)."""

    def __init__(
        self, initializer: KeyValueTensorInitializer | None, num_oov_buckets: int,
        lookup_key_dtype: Any = None, name: str | None = None,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError(f"num_oov_buckets is {num_oov_buckets}; it must be above 0")
        self.num_oov_buckets = int(num_oov_buckets)
        self.name = name or "vocabulary_table"
        self._table = None
        self.key_dtype = dtypes.as_dtype(lookup_key_dtype or dtypes.string)
        if initializer is not None:
            values = initializer.values
            if values.dtype != dtypes.int64:
                raise TypeError(f"the values are {values.dtype}; they must be int64")
            self._table = StaticHashTable(initializer, -1)
            self.key_dtype = self._table.key_dtype

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The numbers of `keys`, int64 of keys.shape; a SparseTensor for one."""
        return _each_value(keys, self._find)

    __getitem__ = lookup

    def _trackable_children(self) -> dict[str, Any]:
        return {}

    def _find(self, keys: Any) -> Any:
        keys = convert(keys, self.key_dtype)
        text = keys if keys.dtype is dtypes.string else ops.strings.as_string(keys)
        bucket = ops.strings.to_hash_bucket_fast(text, self.num_oov_buckets)
        if self._table is None:
            return bucket
        known = self._table.lookup(keys)
        return ops.where(ops.math.less(known, 0), bucket + self._table.size(), known)

    def size(self, name: str | None = None) -> Any:
        """Known keys and buckets together, int64 []."""
        known = 0 if self._table is None else self._table._keys.shape[0]
        return convert(np.int64(known + self.num_oov_buckets))


class _MutableHashTable(Resource):
    """Values by key that ops change (tf.lookup.experimental.MutableHashTable). The default's shape
    is that of a value. In sidereal.v1 graphs, insert() and remove() give operations to run.

    checkpoint: whether a Saver of the graph saves it that is not told what to save.
    """

    _checkpoint_attribute = "table"
    _checkpoint_parts = ("-keys", "-values")

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, name: str = "MutableHashTable",
        shared_name: str | None = None, checkpoint: bool = True,
    ) -> None:  # fmt: skip
        self.key_dtype = dtypes.as_dtype(key_dtype)
        self.value_dtype = dtypes.as_dtype(value_dtype)
        self.default_value = to_tensor(default_value, self.value_dtype)
        self._attrs = component_attrs(
            [self.key_dtype, self.value_dtype], [(), self.default_value.shape]
        )
        super().__init__("MutableTable", self._attrs, name, shared_name)
        add = getattr(state.graph, "add_to_collection", None) if checkpoint else None
        if add is not None:
            add("saveable_objects", self)

    def _apply(
        self, op: str, inputs: Sequence[Any] = (), attrs: Any = None, name: str | None = None
    ) -> Any:
        colocate_with = getattr(state.graph, "colocate_with", None)
        if colocate_with is None:
            return super()._apply(op, inputs, attrs, name)
        with colocate_with(self.handle.op):  # whatever device is asked for
            return super()._apply(op, inputs, attrs, name)

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Any:
        """Sets the values (keys.shape + value's shape) of `keys`."""
        inputs = (convert(keys, self.key_dtype), convert(values, self.value_dtype))
        return done(self._apply("TableInsert", inputs, None, name))

    def lookup(self, keys: Any, dynamic_default_values: Any = None, name: str | None = None) -> Any:
        """The values of `keys`, or the default; a SparseTensor for one."""
        default = self.default_value if dynamic_default_values is None else dynamic_default_values
        default = convert(default, self.value_dtype)
        return _each_value(
            keys,
            lambda k: self._apply("TableFind", (convert(k, self.key_dtype), default), None, name),
        )

    __getitem__ = lookup

    def remove(self, keys: Any, name: str | None = None) -> Any:
        """Forgets `keys`, those that are there."""
        return done(self._apply("TableRemove", (convert(keys, self.key_dtype),), None, name))

    def size(self, name: str | None = None) -> Any:
        """How many keys there are, int64 []."""
        return self._apply("TableSize", (), None, name)

    def export(self, name: str | None = None) -> tuple[Any, Any]:
        """(keys, values), in the order of the keys' bytes."""
        keys, values = self._apply("TableExport", (), self._attrs, name)
        return keys, values

    def _import(self, keys: Any, values: Any) -> Any:
        """Has these keys alone, with these values; InvalidArgumentError for others than it can
        have, before anything changes."""
        graph: Any = state.graph
        if graph is None:
            self._check(keys, values)
            self.remove(self.export()[0])
            return self.insert(keys, values)
        with graph.control_dependencies([self.remove(self.export()[0])]):
            return self.insert(keys, values)

    def _check(self, keys: Any, values: Any) -> None:
        own = (self.key_dtype, self.value_dtype, tuple(self.default_value.shape))
        given = (keys.dtype, values.dtype, tuple(values.shape[1:]))
        if given != own or tuple(keys.shape) != tuple(values.shape[:1]):
            raise errors.InvalidArgumentError(
                f"table '{self.name}' has keys of {dtypes.name_of(own[0])} and values of "
                f"{dtypes.name_of(own[1])}{list(own[2])}; it is to have keys "
                f"{dtypes.name_of(keys.dtype)}{list(keys.shape)} and values "
                f"{dtypes.name_of(values.dtype)}{list(values.shape)}"
            )

    #: What checkpoints of objects call.
    save, restore = export, _import


class experimental:  # noqa: N801 - TensorFlow's name.
    """tf.lookup.experimental."""

    MutableHashTable = _MutableHashTable
