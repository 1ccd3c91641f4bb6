"""Tensors of this process to files of checkpoints, and back, by ops that run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _native
from ._dispatch import apply, state, to_tensor
from ._native import Tensor


def write(prefix: str, named: Sequence[tuple[str, Any]], shard: int, shards: int) -> Any:
    """Writes tensors as data file number `shard` of so many; what commit() is to be told."""
    attrs = {"names": [name for name, _ in named], "shard": shard, "shards": shards}
    with state.at_once():
        return apply("SaveTensors", [to_tensor(prefix), *(value for _, value in named)], attrs)


def commit(prefix: str, parts: Sequence[Any], base: str = "") -> None:
    """Has the checkpoint be there, whose data files are all on disk. `base`: what it stands on."""
    with state.at_once():
        apply("CommitCheckpoint", [to_tensor(prefix), to_tensor(base), *parts])


def opened(prefix: str) -> _native.CheckpointReader:
    """What a checkpoint has: names(), dtype(name), shape(name), and read(name), which is whole."""
    return _native.CheckpointReader(prefix)


def as_python(value: Tensor) -> Any:
    """Strings as bytes, or lists of them."""
    found = value.numpy()
    return found.tolist() if hasattr(found, "tolist") else found
