"""Arguments that may be known with the program or computed by it: shapes, axes, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from .._dispatch import apply, convert

_INTEGERS = (int, np.integer)


def static_int(value: Any) -> int | None:
    """The integer `value` is, None when it is a tensor."""
    if isinstance(value, _INTEGERS) and not isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value)
    return None


def static_ints(value: Any) -> list[int] | None:
    """The integers of a number, list or array, flat; None when a tensor is among them."""
    one = static_int(value)
    if one is not None:
        return [one]
    if isinstance(value, np.ndarray):
        integers = value.dtype.kind in "iu" or value.size == 0
        return [int(x) for x in value.reshape(-1)] if integers else None
    if not isinstance(value, (list, tuple, range)):
        return None
    out: list[int] = []
    for item in value:
        ints = static_ints(item)
        if ints is None:
            return None
        out += ints
    return out


def index_tensor(value: Any) -> Any:
    """`value` as a tensor of int32 or int64; other integers are cast."""
    made = convert(value)
    if made.dtype.name in ("int32", "int64"):
        return made
    if made.dtype.kind in "iu" or made.shape == (0,):
        return apply("Cast", (made,), {"dtype": "int64"})
    raise errors.InvalidArgumentError(
        f"indices, sizes and shapes are integers, but {made.dtype} is given; cast it: "
        "sidereal.cast(x, 'int64')"
    )


def apply_with(
    op: str,
    inputs: Sequence[Any],
    arguments: dict[str, Any],
    attrs: dict[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """apply() of an op whose `arguments`, lists of integers, are attributes when all are known and
    inputs behind the others when one is computed."""
    known = {key: static_ints(value) for key, value in arguments.items()}
    attrs = dict(attrs or {})
    if all(value is not None for value in known.values()):
        return apply(op, inputs, {**attrs, **known}, name=name)
    computed = [index_tensor(value) for value in arguments.values()]
    return apply(op, [*inputs, *computed], attrs, name=name)


def apply_with_int(
    op: str,
    inputs: Sequence[Any],
    key: str,
    value: Any,
    attrs: dict[str, Any] | None = None,
    name: str | None = None,
) -> Any:
    """As apply_with() for an argument that is one integer."""
    known = static_int(value)
    attrs = dict(attrs or {})
    if known is not None:
        return apply(op, inputs, {**attrs, key: known}, name=name)
    return apply(op, [*inputs, index_tensor(value)], attrs, name=name)


def rank_of(x: Any, what: str) -> int:
    """The rank of a tensor; ValueError when it is not known while a graph is built."""
    if x.shape is None:
        raise ValueError(f"{what} needs a value of known rank; give it one with ensure_shape()")
    return len(x.shape)
