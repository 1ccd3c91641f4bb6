"""Nested structures of values: lists, tuples, named tuples and dicts (in the order of their keys).
Everything else, None too, is a leaf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def flatten(structure: Any) -> list[Any]:
    """The leaves from left to right."""
    if isinstance(structure, Mapping):
        return [leaf for key in sorted(structure) for leaf in flatten(structure[key])]
    if isinstance(structure, (list, tuple)):
        return [leaf for item in structure for leaf in flatten(item)]
    return [structure]


def pack(structure: Any, leaves: list[Any]) -> Any:
    """`structure` with `leaves` in the place of its own."""
    rest = iter(leaves)

    def build(part: Any) -> Any:
        if isinstance(part, Mapping):
            made = {key: build(part[key]) for key in sorted(part)}
            kind: Any = type(part)
            return kind((key, made[key]) for key in part)
        if _is_named_tuple(part):
            return type(part)(*(build(item) for item in part))
        if isinstance(part, (list, tuple)):
            return type(part)(build(item) for item in part)
        return next(rest)

    return build(structure)


def map_structure(function: Callable[..., Any], *structures: Any) -> Any:
    """`function` of the leaves, leaf by leaf, in the structure of the first."""
    columns = [flatten(structure) for structure in structures]
    if len({len(column) for column in columns}) > 1:
        raise ValueError("the structures have different numbers of leaves")
    return pack(structures[0], [function(*leaves) for leaves in zip(*columns)])


def describe(structure: Any, leaf: Callable[[Any], Any]) -> Any:
    """A hashable picture of a structure, with `leaf` of each leaf in its place."""
    if isinstance(structure, Mapping):
        return (
            type(structure).__name__,
            tuple((key, describe(structure[key], leaf)) for key in sorted(structure)),
        )
    if isinstance(structure, (list, tuple)):
        return (type(structure).__name__, tuple(describe(item, leaf) for item in structure))
    return leaf(structure)
