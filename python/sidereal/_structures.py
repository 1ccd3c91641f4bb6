"""Nested structures as JSON: lists, tuples, named tuples and dicts, with leaves of any kind."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from . import nest


def write(structure: Any, leaf: Callable[[Any], Any]) -> Any:
    """A nested structure as plain lists and dicts, each leaf as `leaf` says."""
    if isinstance(structure, Mapping):
        if not all(isinstance(key, str) for key in structure):
            raise TypeError(f"dicts are saved when their keys are strings: {list(structure)!r}")
        return {"dict": [[key, write(structure[key], leaf)] for key in structure]}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        items = [write(item, leaf) for item in structure]
        return {"named": [type(structure).__name__, list(structure._fields), items]}
    if isinstance(structure, (list, tuple)):
        kind = "list" if isinstance(structure, list) else "tuple"
        return {kind: [write(item, leaf) for item in structure]}
    return leaf(structure)


def read(written: Any, leaf: Callable[[Any], Any]) -> Any:
    """The reverse of write()."""
    ((kind, what),) = written.items()
    if kind == "dict":
        return {key: read(item, leaf) for key, item in what}
    if kind == "named":
        name, fields, items = what
        made = collections.namedtuple(name, fields)  # type: ignore[misc] # noqa: PYI024
        return made(*(read(item, leaf) for item in items))
    if kind == "list":
        return [read(item, leaf) for item in what]
    if kind == "tuple":
        return tuple(read(item, leaf) for item in what)
    return leaf(written)


def read_in_order(written: Any, leaf: Callable[[Any], Any]) -> Any:
    """As read(), but `leaf` sees the leaves in nest's order."""

    class _Leaf:
        def __init__(self, what: Any) -> None:
            self.what = what

    template = read(written, _Leaf)
    leaves = [leaf(found.what) for found in nest.flatten(template)]
    return nest.pack(template, leaves)
