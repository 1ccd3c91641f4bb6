"""How a variable is cut into shards of rows."""

from __future__ import annotations

import functools
import inspect
from typing import Any, NamedTuple

from .._dispatch import convert, state
from .._graphs import FuncGraph
from ..ops.array import getitem
from ..tensors import constant
from ..variable import check_shape


class ShardInfo(NamedTuple):
    """Which part of a variable a shard is (TensorFlow's ShardInfo): its shape, and where in the
    whole its first element is."""

    shape: tuple[int, ...]
    offset: tuple[int, ...]

    def part_of(self, value: Any) -> Any:
        """The part of an initial value: a function of it, when the value is a function that
        takes_shards(); else the rows of a tensor."""
        if callable(value):
            if "shard_info" in _parameters(value):
                return functools.partial(value, shard_info=self)
            return functools.partial(
                value, partition_shape=self.shape, partition_offset=self.offset
            )
        begin = self.offset[0]
        with state.at_once():
            return getitem(constant(value), slice(begin, begin + self.shape[0]))


def _parameters(function: Any) -> Any:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def takes_shards(function: Any) -> bool:
    """Whether an initial value is a function that makes one shard: of `shard_info`, a ShardInfo, or
    of `partition_shape` and `partition_offset`."""
    known = _parameters(function) if callable(function) else {}
    return "shard_info" in known or {"partition_shape", "partition_offset"} <= set(known)


def spec_of(function: Any, shape: Any, dtype: Any) -> tuple[Any, Any]:
    """Shape and dtype of what a function of ops gives, without running these. InvalidArgumentError
    where others are asked for."""
    with state.at_once():
        graph = FuncGraph("initial_value")
        with graph.building():
            value = graph.enter(convert(function(), dtype))
    check_shape(value.shape, shape)
    return value.shape, value.dtype


def rows_of_shards(rows: int, shards: int) -> list[int]:
    """Rows of each shard, the first ones maybe one more."""
    short, longer = divmod(rows, shards)
    return [short + (i < longer) for i in range(shards)]
