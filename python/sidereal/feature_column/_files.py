"""Columns of files as the readers take them: what sidereal.features makes feature columns of."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from .._data_spec import DataSpec
from .._raw_columns import FieldIds, field_ids, field_of, transformed, transforms_of
from ..ops import array
from ..ops.embedding import SparseTensor
from ..ops.parsing import FixedLenFeature
from ..ops.sparse import to_dense, without
from ._base import CategoricalColumn, DenseColumn, Features, Variables, as_float


@functools.lru_cache(maxsize=16)
def _known(spec: str) -> tuple[DataSpec, Mapping[str, FieldIds]]:
    data = DataSpec.from_json(spec)
    return data, field_ids(data)


def _raw(features: Features, key: str) -> Any:
    """A raw column, [b]."""
    value = features.get(key)
    if isinstance(value, SparseTensor):
        value = to_dense(value)
    return array.reshape(value, [-1])


def _feature(is_number: bool) -> FixedLenFeature:
    if is_number:
        return FixedLenFeature((1,), dtypes.float32, float("nan"))
    return FixedLenFeature((1,), dtypes.string, "")


@dataclass(frozen=True)
class FileNumericColumn(DenseColumn):
    """A number as a model of files sees it. `spec`: the DataSpec as JSON."""

    key: str
    spec: str

    @property
    def name(self) -> str:
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return {self.key: _feature(True)}

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (1,)

    def transformed(self, features: Features) -> Any:
        by = dict(transforms_of(_known(self.spec)[0]))[self.key]
        return array.expand_dims(transformed(as_float(_raw(features, self.key)), by), 1)

    def dense_tensor(self, features: Features, variables: Variables) -> Any:
        return features.get(self)


@dataclass(frozen=True)
class FileCategoricalColumn(CategoricalColumn):
    """The ids of a field of files, from 0 on. `spec`: the DataSpec as JSON."""

    field: str
    spec: str

    @property
    def name(self) -> str:
        return f"{self.field}_ids"

    @property
    def _sources(self) -> list[str]:
        data, _ = _known(self.spec)
        return next((cross for cross in data.crosses if "*".join(cross) == self.field),
                    [self.field])  # fmt: skip

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        numbers = {one.column for one in _known(self.spec)[0].bucketized}
        return {name: _feature(name in numbers) for name in self._sources}

    @property
    def num_buckets(self) -> int:
        return _known(self.spec)[1][self.field].size

    def transformed(self, features: Features) -> Any:
        data, fields = _known(self.spec)
        numbers = {one.column for one in data.bucketized}
        given = {name: _raw(features, name) for name in self._sources}
        given = {name: as_float(x) if name in numbers else x for name, x in given.items()}
        return without(field_of(data, fields, given, self.field), -1)
