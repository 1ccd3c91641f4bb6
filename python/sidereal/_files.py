"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from . import errors


def check_writable(path: str | os.PathLike[str]) -> None:
    """Finds out before a long work that its result could not be written to `path`."""
    file = Path(path)
    if not file.parent.is_dir():
        raise errors.NotFoundError(f"{file.parent} is no folder, in which {file.name} could be")
    if file.is_dir():
        raise errors.InvalidArgumentError(f"{file} is a folder; what is written is one file")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise errors.PermissionDeniedError(f"{file} cannot be written by this user")


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` at the end, if no error comes before."""
    check_writable(path)
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
