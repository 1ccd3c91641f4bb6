"""Columns as dicts and lists, by which layers of them are saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from . import _categorical, _embedding, _files, _numeric, _sequence
from ._base import FeatureColumn

_KINDS = {
    each.__name__: each
    for module in (_categorical, _embedding, _files, _numeric, _sequence)
    for each in vars(module).values()
    if isinstance(each, type) and dataclasses.is_dataclass(each)
}
_SHARED = "SharedTable"


def written(value: Any) -> Any:
    """A column, or what is in one, as dicts; functions and initializers stay as they are."""
    if isinstance(value, _embedding.SharedTable):
        return {"column": _SHARED, "name": value.name, "num_buckets": value.num_buckets}
    if isinstance(value, dtypes.DType):
        return {"dtype": dtypes.name_of(value)}
    if isinstance(value, (list, tuple)):
        return [written(each) for each in value]
    if type(value).__name__ not in _KINDS:
        return value
    fields = {each.name: written(getattr(value, each.name)) for each in dataclasses.fields(value)}
    return {"column": type(value).__name__, **fields}


def read(columns: Sequence[Any]) -> list[Any]:
    """The columns that written() made dicts of; columns as they are. Those that shared a table
    share one."""
    shared: dict[Any, Any] = {}

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(made(each) for each in value)
        if not isinstance(value, dict):
            return value
        if "dtype" in value and len(value) == 1:
            return dtypes.as_dtype(value["dtype"])
        given = {name: made(each) for name, each in value.items() if name != "column"}
        kind = value["column"]
        if kind == _SHARED:
            table = _embedding.SharedTable(**given)
            return shared.setdefault((table.name, table.num_buckets), table)
        if kind not in _KINDS:
            raise ValueError(f"there is no feature column {kind!r}; is it of a later release?")
        return _KINDS[kind](**given)

    return [each if isinstance(each, FeatureColumn) else made(each) for each in columns]
