"""Files and folders with the names of TensorFlow's: sidereal.io.gfile (tf.io.gfile). Of addresses
with a scheme (s3://, hdfs://, http://) files are read and found; all else is of local ones."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from . import _remote_files, errors

__all__ = [
    "GFile", "copy", "exists", "glob", "isdir", "join", "listdir", "makedirs", "mkdir", "remove",
    "rename", "rmtree", "stat", "walk",
]  # fmt: skip

_Path = str | os.PathLike[str]


@contextlib.contextmanager
def _said(path: _Path) -> Iterator[str]:
    """What goes wrong with a local file, as an error of this package."""
    text = os.fspath(path)
    if _remote_files.scheme_of(text):
        raise errors.UnimplementedError(
            f"{text}: only files of this machine can be changed or listed so; write to a local "
            "path and copy it with the tools of that storage"
        )
    try:
        yield text
    except FileNotFoundError as error:
        raise errors.NotFoundError(f"{text}: {error.strerror}") from None
    except FileExistsError as error:
        raise errors.AlreadyExistsError(f"{text}: {error.strerror}") from None
    except PermissionError as error:
        raise errors.PermissionDeniedError(f"{text}: {error.strerror}") from None
    except OSError as error:
        raise errors.FailedPreconditionError(f"{text}: {error.strerror or error}") from None


def GFile(name: _Path, mode: str = "r") -> IO[Any]:  # noqa: N802 - the name is TensorFlow's.
    """An open file, for `with`. Remote ones are read only, as bytes ("rb") or text ("r")."""
    text = os.fspath(name)
    if not _remote_files.scheme_of(text):
        with _said(text):
            return open(text, mode)
    if mode not in ("r", "rb"):
        raise errors.UnimplementedError(f"{text}: remote files are only read, not '{mode}'")
    raw = _remote_files.open_file(text)
    if mode == "rb":
        return raw
    return io.TextIOWrapper(raw, encoding="utf-8")


def exists(path: _Path) -> bool:
    """Whether there is a file or folder of that name."""
    text = os.fspath(path)
    if not _remote_files.scheme_of(text):
        return os.path.exists(text)
    try:
        _remote_files.size_of(text)
    except errors.NotFoundError:
        return False
    return True


def glob(pattern: _Path | Sequence[_Path]) -> list[str]:
    """The files that match a pattern, or one of several."""
    patterns = [pattern] if isinstance(pattern, (str, os.PathLike)) else pattern
    return [found for one in patterns for found in _remote_files.list_files(os.fspath(one))]


def isdir(path: _Path) -> bool:
    """Whether that is a folder of this machine."""
    return os.path.isdir(path)


def join(path: str, *paths: str) -> str:
    """The parts of a path, together."""
    return os.path.join(path, *paths)


def listdir(path: _Path) -> list[str]:
    """The names in a folder, sorted."""
    with _said(path) as text:
        return sorted(os.listdir(text))


def mkdir(path: _Path) -> None:
    """A folder, in one that is there; nothing when it is there already."""
    with _said(path) as text:
        Path(text).mkdir(exist_ok=True)


def makedirs(path: _Path) -> None:
    """A folder and those above it; nothing when it is there already."""
    with _said(path) as text:
        os.makedirs(text, exist_ok=True)


def _new(path: _Path, overwrite: bool) -> str:
    text = os.fspath(path)
    if not overwrite and os.path.exists(text):
        raise errors.AlreadyExistsError(f"{text} is there; overwrite=True replaces it")
    return text


def copy(src: _Path, dst: _Path, overwrite: bool = False) -> None:
    """Copies a file, also a remote one, to one of this machine. AlreadyExistsError when that is
    there."""
    target = _new(dst, overwrite)
    with GFile(src, "rb") as read, _said(target), open(target, "wb") as written:
        shutil.copyfileobj(read, written)


def rename(src: _Path, dst: _Path, overwrite: bool = False) -> None:
    """Gives a file or folder another name. AlreadyExistsError when that is there."""
    with _said(src) as text:
        os.replace(text, _new(dst, overwrite))


def remove(path: _Path) -> None:
    """Deletes a file."""
    with _said(path) as text:
        os.remove(text)


def rmtree(path: _Path) -> None:
    """Deletes a folder with all that is in it."""
    with _said(path) as text:
        shutil.rmtree(text)


def stat(path: _Path) -> os.stat_result:
    """What the system says of a file: `length` of TensorFlow is st_size here."""
    with _said(path) as text:
        return os.stat(text)


def walk(
    top: _Path, topdown: bool = True, onerror: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """(folder, folders in it, files in it) of a folder and all in it."""
    return os.walk(os.fspath(top), topdown, onerror)
