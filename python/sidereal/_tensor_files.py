"""Tensors of this process to files of checkpoints, and back, by ops that run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _native, dtypes
from ._dispatch import apply, state, to_tensor
from ._resources import component_attrs


class Wanted(NamedTuple):
    """An entry of a checkpoint, and what it is to be."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


def write(prefix: str, named: Sequence[tuple[str, Any]], shard: int, shards: int) -> Any:
    """Writes tensors as data file number `shard` of so many; what commit() is to be told."""
    attrs = {"names": [name for name, _ in named], "shard": shard, "shards": shards}
    with state.at_once():
        return apply("SaveTensors", [to_tensor(prefix), *(value for _, value in named)], attrs)


def commit(prefix: str, parts: Sequence[Any]) -> None:
    """Has the checkpoint be there, whose data files are all on disk."""
    with state.at_once():
        apply("CommitCheckpoint", [to_tensor(prefix), to_tensor(""), *parts])


def read(prefix: str, wanted: Sequence[Wanted]) -> list[Any]:
    """Tensors of a checkpoint, whole, in the order asked for."""
    if not wanted:
        return []
    attrs = {
        "names": [each.name for each in wanted],
        **component_attrs([each.dtype for each in wanted], [each.shape for each in wanted]),
    }
    with state.at_once():
        found = apply("RestoreTensors", [to_tensor(prefix)], attrs)
    return list(found) if isinstance(found, tuple) else [found]


def read_bytes(prefix: str, name: str) -> bytes:
    """A scalar of strings."""
    value = read(prefix, [Wanted(name, dtypes.string, ())])[0].numpy()
    found = value.item() if hasattr(value, "item") else value
    assert isinstance(found, bytes)
    return found


def opened(prefix: str) -> Any:
    """What a checkpoint has, without its values."""
    return _native.CheckpointReader(prefix)
