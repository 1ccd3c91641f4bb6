"""Files of saved models: written whole or not at all, and read with every length checked.

They are ZIP files whose members are not compressed, so that no member is longer than the file.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import struct
import tokenize
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from .. import errors
from ..saved_model import open_saved

#: What reading a ZIP file that was damaged may end in.
_DAMAGES = (
    zipfile.BadZipFile, struct.error, EOFError, KeyError, NotImplementedError, OSError,
    OverflowError, RuntimeError, ValueError,
)  # fmt: skip
#: What describes an array, as Python that is parsed, may be wrong in.
_UNREADABLE = (
    EOFError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError, tokenize.TokenError,
)  # fmt: skip
#: Bytes of the description of an array.
_LONGEST_HEADER = 10_000


def _member(name: str) -> zipfile.ZipInfo:
    """A member of the same bytes whenever it is written."""
    made = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    made.external_attr = 0o644 << 16
    return made


def write_members(
    file: BinaryIO, members: Mapping[str, bytes | Callable[[BinaryIO], None]]
) -> None:
    """A ZIP file of members, each its bytes or a function that writes them."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            with archive.open(_member(name), "w", force_zip64=True) as member:
                if isinstance(data, bytes):
                    member.write(data)
                else:
                    data(cast(BinaryIO, member))


def write_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """A ZIP file of arrays, as numpy.savez() writes one."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(_member(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


class Archive:
    """A ZIP file that is read; `where` is what errors call it.

    Errors: DataLossError for what is no such file or was damaged; InvalidArgumentError for members
    that are compressed, or whose names lead out of a folder.
    """

    def __init__(self, where: str, file: BinaryIO) -> None:
        self.where = where
        try:
            length = file.seek(0, os.SEEK_END)
            self._file = zipfile.ZipFile(file)
            members = self._file.infolist()
        except _DAMAGES as error:
            raise errors.DataLossError(
                f"{where} is no saved model, or was cut short: {error}"
            ) from None
        self.names = [member.filename for member in members]
        for member in members:
            self._check(member)
        if len(set(self.names)) < len(self.names):
            raise errors.InvalidArgumentError(f"{where} has two members of one name")
        if sum(member.file_size for member in members) > length:
            raise errors.DataLossError(f"{where}: its members say they are longer than the file")

    def _check(self, member: zipfile.ZipInfo) -> None:
        parts = member.filename.split("/")
        if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
            raise errors.InvalidArgumentError(
                f"{self.where}: the name {member.filename!r} of a member leads to another place"
            )
        is_stored = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1
        if not is_stored or member.file_size != member.compress_size:
            raise errors.InvalidArgumentError(
                f"{self.where}: its member {member.filename} is compressed; members of saved "
                "models are not"
            )

    def read(self, name: str) -> bytes:
        """A member."""
        try:
            return self._file.read(name)
        except _DAMAGES as error:
            raise errors.DataLossError(f"{self.where}: {name} cannot be read: {error}") from None

    def arrays(self) -> dict[str, np.ndarray]:
        """The members of write_arrays()."""
        return {
            name.removesuffix(".npy"): self._array(name)
            for name in self.names
            if name.endswith(".npy")
        }

    def _array(self, name: str) -> np.ndarray:
        data = self.read(name)
        file = io.BytesIO(data)
        try:
            version = np.lib.format.read_magic(file)
            header = (
                np.lib.format.read_array_header_1_0 if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )  # fmt: skip
            shape, fortran, dtype = header(file, max_header_size=_LONGEST_HEADER)
        except _UNREADABLE as error:
            raise errors.DataLossError(f"{self.where}: {name} is no array: {error}") from None
        begin = file.tell()
        length: Any = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or min(shape, default=0) < 0 or length != len(data) - begin:
            raise errors.DataLossError(
                f"{self.where}: {name} says it is an array of shape {shape} and dtype {dtype}, "
                f"which its {len(data) - begin} bytes are not"
            )
        flat = np.frombuffer(data, dtype, offset=begin)
        return flat.reshape(shape, order="F" if fortran else "C")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The file of that name. NotFoundError without it."""
    with open_saved(path, "file") as file:
        yield Archive(str(path), file)
