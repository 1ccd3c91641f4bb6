"""Which checkpoints of a folder a checkpoint stands on: one that has what has changed since another
one needs that to be restored. Read from the beginning of index files (docs/formats/checkpoint.md).
"""

from __future__ import annotations

import glob
import os
import struct
from collections.abc import Iterable

_MAGIC = b"SRCKPT"
_FORMAT = 1
_HEADER = struct.Struct("<6sHI")
#: Bytes of a name that a file system takes.
_NAME_MAX = 4096


def base_of(prefix: str) -> str | None:
    """The checkpoint that one stands on; None: it is whole, or no checkpoint is there that says
    so."""
    try:
        with open(prefix + ".index", "rb") as file:
            said = file.read(_HEADER.size + _NAME_MAX)
    except OSError:
        return None
    if len(said) < _HEADER.size:
        return None
    magic, version, length = _HEADER.unpack_from(said)
    name = said[_HEADER.size : _HEADER.size + length]
    if magic != _MAGIC or version != _FORMAT or not name or len(name) < length:
        return None
    return os.path.join(os.path.dirname(prefix), os.fsdecode(name))


def bases_of(prefix: str) -> list[str]:
    """All that a checkpoint stands on, the nearest first, up to one that is whole or missing."""
    found: list[str] = []
    base = base_of(prefix)
    while base is not None and base not in found:
        found.append(base)
        base = base_of(base)
    return found


def needed_by(prefixes: Iterable[str]) -> set[str]:
    """Absolute prefixes of checkpoints and of all that they stand on."""
    found: set[str] = set()
    for prefix in prefixes:
        found.update(os.path.abspath(one) for one in (prefix, *bases_of(prefix)))
    return found


def standing_on(prefix: str) -> list[str]:
    """The checkpoints beside one that stand on it."""
    sought = os.path.abspath(prefix)
    folder = os.path.dirname(prefix)
    others = glob.glob(os.path.join(glob.escape(folder), "*.index"))
    paths = sorted(one.removesuffix(".index") for one in others)
    return [one for one in paths if sought in needed_by([one]) and os.path.abspath(one) != sought]
