"""What a model of files predicts as a function of their columns, as they stand there: texts and
numbers by name. It does in a graph what the readers do (src/sidereal/data/csv_parser.cc)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import ops
from ._data_spec import DataSpec, NumericTransform
from .dtypes import float32, int64, string
from .function import ConcreteFunction, Function, TensorSpec, function
from .ops.ragged import RaggedTensor
from .tensors import constant

#: Between the texts of a cross.
_CROSS_SEPARATOR = "\x1f"
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


class _Columns:
    """The columns of one call, and what the model takes made of them."""

    def __init__(self, data: DataSpec, given: Mapping[str, Any]) -> None:
        self._data, self._given = data, given
        self._defaults = dict(data.defaults)
        self._many = {one.column: one for one in data.multi_hot}
        self._texts: dict[str, Any] = {}

    def dense(self) -> Any:
        data = self._data
        by = data.transforms or [NumericTransform()] * len(data.numeric)
        found = []
        for name, one in zip(data.numeric, by):
            missing = float(self._defaults.get(name, one.missing))
            plain = NumericTransform(one.kind, one.offset, one.scale, missing, one.boundaries)
            found.append(transformed(self._given[name], plain))
        return ops.array.stack(found, 1)

    def ids(self) -> Any:
        data = self._data
        found = [self._category(field, name) for field, name in enumerate(data.categorical)]
        field = len(data.categorical)
        for one in data.bucketized:
            bucket = self._bucket(one.column, one.boundaries)
            self._texts[one.column] = ops.strings.as_string(bucket)
            first = constant(np.int64(field * data.hash_buckets))
            found.append(ops.array.expand_dims(ops.math.add(bucket, first), 1))
            field += 1
        for cross in data.crosses:
            joined = ops.strings.join([self._texts[name] for name in cross], _CROSS_SEPARATOR)
            found.append(ops.array.expand_dims(self._id(joined, field), 1))
            field += 1
        return ops.array.concat(found, 1)

    def _id(self, text: Any, field: int) -> Any:
        return ops.strings.category_id(text, field, self._data.hash_buckets)

    def _bucket(self, name: str, boundaries: list[float]) -> Any:
        x = self._given[name]
        count = float(len(boundaries) + 1)
        if name in self._defaults:
            found = _bucket_of(_filled(x, float(self._defaults[name])), boundaries)
        else:
            found = ops.math.where(ops.math.is_nan(x), _constant(count), _bucket_of(x, boundaries))
        return ops.basic.cast(found, int64)

    def _category(self, field: int, name: str) -> Any:
        text = self._given[name]
        if self._defaults.get(name):
            text = ops.math.where(
                ops.math.equal(text, constant("")), constant(self._defaults[name]), text
            )
        self._texts[name] = text
        many = self._many.get(name)
        if many is None:
            return ops.array.expand_dims(self._id(text, field), 1)
        pieces = ops.strings.split(text, many.separator)
        made = self._id(ops.strings.strip(pieces.values), field)
        ids = RaggedTensor(made, pieces.row_splits).to_tensor(
            constant(np.int64(-1)), shape=[None, many.max_length]
        )
        # Of nothing, split() makes one piece without text.
        is_empty = ops.array.expand_dims(ops.math.equal(text, constant("")), 1)
        ids = ops.math.where(is_empty, constant(np.int64(-1)), ids)
        return ops.array.reshape(ids, [-1, many.max_length])


def _criteo(given: Mapping[str, Any], buckets: int) -> dict[str, Any]:
    counts = [given[f"I{i + 1}"] for i in range(_CRITEO_NUMBERS)]
    texts = [given[f"C{i + 1}"] for i in range(_CRITEO_CATEGORIES)]
    known = [ops.math.maximum(_filled(x, 0.0), _constant(0.0)) for x in counts]
    ids = [ops.strings.category_id(text, i, buckets) for i, text in enumerate(texts)]
    return {
        "dense": ops.array.stack([ops.math.log1p(x) for x in known], 1),
        "ids": ops.array.stack(ids, 1),
    }


def _specs(data: DataSpec) -> list[TensorSpec]:
    if data.format == "criteo":
        numbers: list[str] = [f"I{i + 1}" for i in range(_CRITEO_NUMBERS)]
        texts = [f"C{i + 1}" for i in range(_CRITEO_CATEGORIES)]
    else:
        bucketized = [one.column for one in data.bucketized]
        numbers = list(dict.fromkeys([*data.numeric, *bucketized]))
        texts = data.categorical
    return [
        *(TensorSpec((None,), float32, name) for name in numbers),
        *(TensorSpec((None,), string, name) for name in texts),
    ]


def takes_columns(data: DataSpec | None, inputs: Mapping[str, Any]) -> bool:
    """Whether a model with these inputs can be a function of the columns of such data."""
    if data is None or data.format not in ("csv", "criteo") or not set(inputs) <= {"dense", "ids"}:
        return False
    is_hashed = data.format == "criteo" or data.id_space <= 0 or "ids" not in inputs
    return is_hashed and bool(_specs(data))


def of_columns(serve: ConcreteFunction, inputs: Mapping[str, Any], data: DataSpec) -> Function:
    """`serve`, which takes `inputs`, as a function of the columns of files: float32 [b], NaN for an
    empty cell, and strings [b]."""
    specs = _specs(data)
    names = [str(spec.name) for spec in specs]

    @function(input_signature=specs)
    def columns(*values: Any) -> Any:
        given = dict(zip(names, values))
        if data.format == "criteo":
            made = _criteo(given, data.hash_buckets)
        else:
            known = _Columns(data, given)
            made = {}
            if "dense" in inputs:
                made["dense"] = known.dense()
            if "ids" in inputs:
                made["ids"] = known.ids()
        return serve(*(made[name] for name in inputs))

    return columns


__all__ = ["of_columns", "takes_columns", "transformed"]
