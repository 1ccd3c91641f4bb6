"""Shapes of which some extents are known only when a graph runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import errors
from ...ops import array


def rank_of(where: str, x: Any) -> int:
    """The number of dimensions; InvalidArgumentError when it is not known."""
    if x.shape is None:
        raise errors.InvalidArgumentError(
            f"layer '{where}': the number of dimensions of its inputs must be known"
        )
    return len(x.shape)


def positive(where: str, name: str, value: Any) -> int:
    """An argument of a layer that is an extent or a count; ValueError when it cannot be one."""
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"layer '{where}': {name} is {value!r}; it must be a positive integer")
    return value


def reshaped(x: Any, extents: Sequence[Any]) -> Any:
    """`x` in a shape whose extents are integers or scalars of the graph."""
    known = [extent if isinstance(extent, int) else -1 for extent in extents]
    if known.count(-1) <= 1 and 0 not in known:
        return array.reshape(x, known)
    return array.reshape(x, array.stack(list(extents)))


def extents_of(x: Any) -> list[Any]:
    """The extents, those that are not known as scalars of the graph."""
    if all(n >= 0 for n in x.shape):
        return list(x.shape)
    shape = array.shape(x)
    return [n if n >= 0 else shape[i] for i, n in enumerate(x.shape)]


def by_rows(x: Any, width: int) -> Any:
    """`x` as a matrix of rows of its last dimension, which has that extent."""
    return x if len(x.shape) == 2 else array.reshape(x, [-1, width])


def like_rows(flat: Any, x: Any) -> Any:
    """The reverse: rows that were made of those of `x`, where these are."""
    return flat if len(x.shape) == 2 else reshaped(flat, [*extents_of(x)[:-1], flat.shape[-1]])
