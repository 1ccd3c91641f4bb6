"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from . import errors


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` at the end, if no error comes before."""
    if not path.parent.is_dir():
        raise errors.NotFoundError(f"{path.parent} is no folder, in which {path.name} could be")
    if path.is_dir():
        raise errors.InvalidArgumentError(f"{path} is a folder; what is written is one file")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
