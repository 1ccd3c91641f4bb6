"""What a model of files predicts as a function of their columns, as they stand there: texts and
numbers by name. It does in a graph what the readers do (src/sidereal/data/csv_parser.cc)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from . import ops
from ._data_spec import DataSpec, NumericTransform, Vocabulary
from .dtypes import float32, int64, string
from .function import ConcreteFunction, Function, TensorSpec, function
from .lookup import KeyValueTensorInitializer, StaticHashTable
from .ops.indexing import gather
from .ops.sparse import CROSS_KEY, fingerprints, joined_fingerprints, word
from .tensors import constant

#: Between the texts of a cross.
CROSS_SEPARATOR = "\x1f"
_CRITEO_NUMBERS, _CRITEO_CATEGORIES = 13, 26


def _constant(value: float) -> Any:
    return constant(np.float32(value))


def _bucket_of(x: Any, boundaries: list[float]) -> Any:
    """How many of the boundaries are not above x, as float32."""
    known = constant(np.array(boundaries, np.float32).reshape(1, -1))
    above = ops.math.greater_equal(ops.array.expand_dims(x, 1), known)
    return ops.basic.reduce_sum(ops.basic.cast(above, float32), [1])


def _filled(x: Any, missing: float) -> Any:
    """NaN, which stands for an empty cell, as another number."""
    return ops.math.where(ops.math.is_nan(x), _constant(missing), x)


def transformed(x: Any, by: NumericTransform) -> Any:
    """What a model sees of a column of numbers."""
    x = _filled(x, by.missing)
    if by.kind in ("log1p", "log1p_standard"):
        x = ops.math.multiply(ops.math.sign(x), ops.math.log1p(ops.math.abs(x)))
    elif by.kind == "quantile":
        x = _bucket_of(x, by.boundaries)
    if by.kind == "none":
        return x
    return ops.math.multiply(ops.math.subtract(x, _constant(by.offset)), _constant(by.scale))


class FieldIds:
    """The ids of the texts of one field, the number `field`: those from `first` on."""

    def __init__(
        self, field: int, first: int, size: int, by_farmhash: bool, vocabulary: Vocabulary | None
    ) -> None:
        self.first, self.size = first, size
        self._field, self._by_farmhash = field, by_farmhash
        self._num_oov = 0
        self._table: Any = None
        if vocabulary is not None:
            self._num_oov = vocabulary.num_oov_indices
            numbers = np.arange(self._num_oov, size, dtype=np.int64)
            pairs = KeyValueTensorInitializer(vocabulary.tokens, numbers, string)
            self._table = StaticHashTable(pairs, -1)

    def __call__(self, text: Any) -> Any:
        """Ids from 0 on, of this field alone."""
        if self._table is not None:
            known = self._table.lookup(text)
            others = ops.array.zeros_like(known)
            if self._num_oov > 1:
                others = ops.strings.to_hash_bucket_fast(text, self._num_oov)
            return ops.math.where(ops.math.less(known, constant(np.int64(0))), others, known)
        if self._by_farmhash:
            return ops.strings.to_hash_bucket_fast(text, self.size)
        found = ops.strings.category_id(text, self._field, self.size)
        return ops.math.subtract(found, constant(np.int64(self._field * self.size)))

    def crossed(self, values: list[Any]) -> Any:
        """Those of several texts, or numbers of buckets, together."""
        if not self._by_farmhash:
            return self(ops.strings.join(list(map(ops.strings.as_string, values)), CROSS_SEPARATOR))
        found: Any = word(CROSS_KEY)
        for value in values:
            is_text = value.dtype.name == "string"
            words = fingerprints(value) if is_text else ops.basic.cast(value, "uint64")
            found = joined_fingerprints(found, words)
        return ops.basic.cast(ops.math.floormod(found, word(self.size)), "int64")


def field_ids(data: DataSpec) -> dict[str, FieldIds]:
    """The ids of each field by its name; those of sequences that have the ids of another column
    too."""
    numbered = {one.column: one for one in data.vocabularies}
    by_farmhash = data.hash == "farmhash"
    found = {}
    fields = data.fields()
    for i, (name, first, size) in enumerate(fields):
        # A bucketized column may be called as a categorical one is not.
        vocabulary = None if name in found else numbered.get(name)
        found[name] = FieldIds(i, first, size, by_farmhash, vocabulary)
    for one in data.sequences:
        if one.like:
            found[one.column] = found[one.like]
    return found


def pieces_of(
    text: Any, separator: str, max_length: int, padding: str = "post", truncating: str = "post"
) -> tuple[Any, Any]:
    """(the values of cells [b, max_length], whether there is one) of a column with several."""
    pieces = ops.strings.split(text, separator)
    length = constant(np.int64(max_length))
    starts = pieces.row_splits[:-1]
    # Of nothing, split() makes one piece without text.
    is_empty = ops.math.equal(text, constant(""))
    count = ops.math.where(
        is_empty, ops.array.zeros_like(starts), ops.math.subtract(pieces.row_splits[1:], starts)
    )
    taken = ops.math.minimum(count, length)
    nothing = ops.array.zeros_like(count)
    from_ = ops.math.subtract(count, taken) if truncating == "pre" else nothing
    at = ops.math.subtract(length, taken) if padding == "pre" else nothing
    place = constant(np.arange(max_length, dtype=np.int64).reshape(1, -1))
    number = ops.math.subtract(place, ops.array.expand_dims(at, 1))
    is_there = ops.math.logical_and(
        ops.math.greater_equal(number, constant(np.int64(0))),
        ops.math.less(number, ops.array.expand_dims(taken, 1)),
    )
    source = ops.math.add(number, ops.array.expand_dims(ops.math.add(starts, from_), 1))
    source = ops.math.where(is_there, source, ops.array.zeros_like(source))
    return gather(ops.strings.strip(pieces.values), source), is_there


def transforms_of(data: DataSpec) -> list[tuple[str, NumericTransform]]:
    """The numeric columns and what is made of them, with what an empty cell counts as."""
    defaults = dict(data.defaults)
    by = data.transforms or [NumericTransform()] * len(data.numeric)
    return [
        (name, replace(one, missing=float(defaults.get(name, one.missing))))
        for name, one in zip(data.numeric, by)
    ]


class _Columns:
    """The columns of one call, and what the model takes made of them."""

    def __init__(
        self, data: DataSpec, fields: Mapping[str, FieldIds], given: Mapping[str, Any]
    ) -> None:
        self._data, self._fields, self._given = data, fields, given
        self._defaults = dict(data.defaults)
        self._many = {one.column: one for one in data.multi_hot}

    def dense(self) -> Any:
        made = [transformed(self._given[name], by) for name, by in transforms_of(self._data)]
        return ops.array.stack(made, 1)

    def ids(self) -> Any:
        data = self._data
        others = [*(one.column for one in data.bucketized), *map("*".join, data.crosses)]
        return ops.array.concat([self.field(name) for name in [*data.categorical, *others]], 1)

    def field(self, name: str) -> Any:
        """The ids of a field, [b, 1] or of several values [b, max_length]."""
        data = self._data
        if name in data.categorical and name in self._many:
            many = self._many[name]
            return self._several(self._filled_text(name), name, many, "post", "post")
        if name in data.categorical:
            made = self._fields[name](self._value(name))
        elif any(one.column == name for one in data.bucketized):
            made = self._value(name)
        else:
            (cross,) = {tuple(cross) for cross in data.crosses if "*".join(cross) == name}
            made = self._fields[name].crossed([self._value(each) for each in cross])
        return self._shifted(ops.array.expand_dims(made, 1), name)

    def _value(self, name: str) -> Any:
        """The text of a cell, or the number of its bucket."""
        for one in self._data.bucketized:
            if one.column == name:
                return self._bucket(name, one.boundaries)
        return self._filled_text(name)

    def sequence(self, name: str) -> Any:
        """The ids of a sequence, [b, max_length]."""
        (one,) = (each for each in self._data.sequences if each.column == name)
        return self._several(self._filled_text(name), name, one, one.padding, one.truncating)

    def _shifted(self, ids: Any, name: str) -> Any:
        return ops.math.add(ids, constant(np.int64(self._fields[name].first)))

    def _several(
        self, text: Any, name: str, many: Any, padding: str, truncating: str
    ) -> Any:
        pieces, is_there = pieces_of(
            text, many.separator, many.max_length, padding, truncating
        )
        ids = self._shifted(self._fields[name](pieces), name)
        return ops.math.where(is_there, ids, constant(np.int64(-1)))

    def _filled_text(self, name: str) -> Any:
        text = self._given[name]
        if not self._defaults.get(name):
            return text
        return ops.math.where(
            ops.math.equal(text, constant("")), constant(self._defaults[name]), text
        )

    def _bucket(self, name: str, boundaries: list[float]) -> Any:
        x = self._given[name]
        count = float(len(boundaries) + 1)
        if name in self._defaults:
            found = _bucket_of(_filled(x, float(self._defaults[name])), boundaries)
        else:
            found = ops.math.where(ops.math.is_nan(x), _constant(count), _bucket_of(x, boundaries))
        return ops.basic.cast(found, int64)


def field_of(
    data: DataSpec, fields: Mapping[str, FieldIds], given: Mapping[str, Any], name: str
) -> Any:
    """The ids of a field or sequence from 0 on, [b, n], -1 for none."""
    known = _Columns(data, fields, given)
    is_sequence = any(one.column == name for one in data.sequences)
    ids = known.sequence(name) if is_sequence else known.field(name)
    first = constant(np.int64(fields[name].first))
    return ops.math.where(ops.math.less(ids, first), ids, ops.math.subtract(ids, first))


def columns_of(
    data: DataSpec, fields: Mapping[str, FieldIds], given: Mapping[str, Any], wanted: Any
) -> dict[str, Any]:
    """The inputs of a model that are wanted, "dense", "ids" and sequences, made of raw columns."""
    known = _Columns(data, fields, given)
    made: dict[str, Any] = {}
    for name in wanted:
        if name == "dense":
            made[name] = known.dense()
        else:
            made[name] = known.ids() if name == "ids" else known.sequence(name)
    return made


def _criteo(given: Mapping[str, Any], buckets: int) -> dict[str, Any]:
    counts = [given[f"I{i + 1}"] for i in range(_CRITEO_NUMBERS)]
    texts = [given[f"C{i + 1}"] for i in range(_CRITEO_CATEGORIES)]
    known = [ops.math.maximum(_filled(x, 0.0), _constant(0.0)) for x in counts]
    ids = [ops.strings.category_id(text, i, buckets) for i, text in enumerate(texts)]
    return {
        "dense": ops.array.stack([ops.math.log1p(x) for x in known], 1),
        "ids": ops.array.stack(ids, 1),
    }


def raw_specs(data: DataSpec) -> list[TensorSpec]:
    """The raw columns: float32 [b] of numbers, NaN for an empty cell, and strings [b]."""
    if data.format == "criteo":
        numbers: list[str] = [f"I{i + 1}" for i in range(_CRITEO_NUMBERS)]
        texts = [f"C{i + 1}" for i in range(_CRITEO_CATEGORIES)]
    else:
        bucketized = [one.column for one in data.bucketized]
        numbers = list(dict.fromkeys([*data.numeric, *bucketized]))
        texts = [*data.categorical, *(one.column for one in data.sequences)]
    return [
        *(TensorSpec((None,), float32, name) for name in numbers),
        *(TensorSpec((None,), string, name) for name in texts),
    ]


def takes_columns(data: DataSpec | None, inputs: Mapping[str, Any]) -> bool:
    """Whether a model with these inputs can be a function of the columns of such data."""
    if data is None or data.format not in ("csv", "criteo"):
        return False
    sequences = {one.column for one in data.sequences}
    if not set(inputs) <= {"dense", "ids", *sequences}:
        return False
    has_no_ids = "ids" not in inputs and not sequences
    is_hashed = data.format == "criteo" or data.id_space <= 0 or has_no_ids
    return is_hashed and bool(raw_specs(data))


def of_columns(serve: ConcreteFunction, inputs: Mapping[str, Any], data: DataSpec) -> Function:
    """`serve`, which takes `inputs`, as a function of the columns of files: float32 [b], NaN for an
    empty cell, and strings [b]."""
    specs = raw_specs(data)
    names = [str(spec.name) for spec in specs]
    fields = {} if data.format == "criteo" else field_ids(data)

    @function(input_signature=specs)
    def columns(*values: Any) -> Any:
        given = dict(zip(names, values))
        if data.format == "criteo":
            made = _criteo(given, data.hash_buckets)
        else:
            made = columns_of(data, fields, given, inputs)
        return serve(*(made[name] for name in inputs))

    return columns


__all__ = [
    "CROSS_SEPARATOR", "FieldIds", "columns_of", "field_ids", "field_of", "of_columns", "pieces_of",
    "raw_specs", "takes_columns", "transformed", "transforms_of",
]  # fmt: skip
