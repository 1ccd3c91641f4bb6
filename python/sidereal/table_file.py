"""Tables in a file that is mapped into memory: rows of embeddings for programs that serve.

    sr.write_tables("tables.safetensors", {"user": user, "item": item})
    rows = sr.TableFile("tables.safetensors", "user").lookup([7, 7, 123])

The file has the layout of safetensors, so that other programs read it too; docs/formats/
table_file.md says what is in it beside that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from . import _native, errors
from ._files import written_whole

_FORMAT = "sidereal.tables 1"
#: Tables begin at multiples of it: a mapping begins at a page, a row of a power of two in a line.
_ALIGNMENT = 4096
#: The longest header that is read; that of a table is some hundred bytes.
_MAX_HEADER = 100 << 20
#: A table is written and its checksums are made by so many bytes.
_BLOCK = 64 << 20

_NAMES = {
    "<f4": "F32", "<f8": "F64", "<f2": "F16", "|i1": "I8", "<i2": "I16", "<i4": "I32",
    "<i8": "I64", "|u1": "U8", "<u2": "U16", "<u4": "U32", "<u8": "U64",
}  # fmt: skip
_TYPES = {name: np.dtype(kind) for kind, name in _NAMES.items()}


def _bytes_of(rows: npt.NDArray[Any]) -> memoryview:
    """The elements of an array, as they lie in memory."""
    if not rows.size:
        return memoryview(b"")
    flat: Any = rows
    return memoryview(flat).cast("B")


def _checksums(rows: npt.NDArray[Any]) -> str:
    """CRC32C of each block, as hexadecimal numbers."""
    data = _bytes_of(rows)
    return " ".join(
        f"{_native.crc32c(bytes(data[i : i + _BLOCK])):08x}" for i in range(0, len(data), _BLOCK)
    )


def numbers_of(ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Numbers of rows, as an array. Errors: InvalidArgumentError for what is no integer of 64
    bits."""
    numbers = np.asarray(ids)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise errors.InvalidArgumentError(f"ids are integers, and not {numbers.dtype}")
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        raise errors.InvalidArgumentError(f"id {numbers.max()} is not below 2**63")
    return np.ascontiguousarray(numbers, np.int64).reshape(numbers.shape)


def write_tables(path: str | os.PathLike[str], tables: Mapping[str, npt.ArrayLike]) -> None:
    """Writes tables, arrays of rows by name, to one file, whole or not at all.

    Errors: InvalidArgumentError for what is no table of numbers.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, value in tables.items():
        array = np.asarray(value)
        if array.ndim != 2 or array.dtype.newbyteorder("<").str not in _NAMES:
            raise errors.InvalidArgumentError(
                f"table '{name}' is {array.dtype} {list(array.shape)}; a table is numbers "
                "[rows, dim]"
            )
        if not name or name == "__metadata__":
            raise errors.InvalidArgumentError(f"a table cannot be called '{name}'")
        arrays[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if not arrays:
        raise errors.InvalidArgumentError("there is no table to write")
    entries: dict[str, Any] = {
        "__metadata__": {
            "format": _FORMAT,
            "producer": f"sidereal {_native.__version__}",
            **{f"crc32c/{name}": _checksums(array) for name, array in arrays.items()},
        }
    }
    layout: list[tuple[int, npt.NDArray[Any]]] = []
    at = 0
    for name, array in arrays.items():
        gap = -at % _ALIGNMENT
        if gap:  # Readers want no holes.
            filler = f"__filler_{len(layout)}__"
            entries[filler] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
        at += gap
        end = at + array.nbytes
        kind = _NAMES[array.dtype.str]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, end]}
        layout.append((gap, array))
        at = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNMENT)
    with written_whole(Path(path)) as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for gap, array in layout:
            file.write(bytes(gap))
            _write(file, array)


def _write(file: BinaryIO, array: npt.NDArray[Any]) -> None:
    data = _bytes_of(array)
    for i in range(0, len(data), _BLOCK):
        file.write(data[i : i + _BLOCK])


class TableFile:
    """A table of a file, mapped into memory: what is not looked up is not read.

    path: what write_tables() or `sidereal export --format tables` wrote, or another file of
        safetensors.
    name: of the table; it may be left out where there is one.

    Errors: NotFoundError; InvalidArgumentError or DataLossError for none, or one cut.
    """

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.path = os.fspath(path)
        self._header, begin = _header_of(self.path)
        names = self.tables(self.path)
        if name is None:
            if len(names) != 1:
                raise errors.InvalidArgumentError(
                    f"{self.path} has {len(names)} tables; give the name of one: {', '.join(names)}"
                )
            name = names[0]
        if name not in names:
            raise errors.NotFoundError(
                f"{self.path} has no table '{name}'; it has: {', '.join(names)}"
            )
        self.name = name
        entry = self._header[name]
        rows, dim = entry["shape"]
        if rows * dim:
            #: The rows, as an array that is not in memory.
            self.rows: npt.NDArray[Any] = np.memmap(
                self.path, _TYPES[entry["dtype"]], "r", begin + entry["data_offsets"][0],
                (rows, dim),
            )  # fmt: skip
        else:
            self.rows = np.zeros((rows, dim), _TYPES[entry["dtype"]])

    @staticmethod
    def tables(path: str | os.PathLike[str]) -> list[str]:
        """The names of a file's tables."""
        header, _ = _header_of(os.fspath(path))
        return [
            name for name, entry in header.items()
            if name != "__metadata__" and len(entry["shape"]) == 2 and entry["dtype"] in _TYPES
        ]  # fmt: skip

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and elements of a row."""
        return self.rows.shape[0], self.rows.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of an element."""
        return self.rows.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def lookup(self, ids: npt.ArrayLike) -> npt.NDArray[Any]:
        """Rows by number, [ids..., dim]; zeros for a negative one, as in a model.

        Errors: InvalidArgumentError for a number that is not below the number of rows.
        """
        numbers = numbers_of(ids)
        if numbers.size and numbers.max() >= len(self):
            raise errors.InvalidArgumentError(
                f"id {numbers.max()} is not in table '{self.name}' of {self.path}, which has "
                f"{len(self)} rows"
            )
        found = np.zeros((*numbers.shape, self.shape[1]), self.dtype)
        there = numbers >= 0
        found[there] = self.rows[numbers[there]]
        return found

    def verify(self) -> None:
        """Reads all of the table and compares its checksums. Errors: DataLossError, and
        FailedPreconditionError for a file that has none."""
        wanted = self._header.get("__metadata__", {}).get(f"crc32c/{self.name}")
        if wanted is None:
            raise errors.FailedPreconditionError(
                f"{self.path} has no checksums of table '{self.name}'; only write_tables() makes "
                "them"
            )
        found = _checksums(self.rows)
        for i, (one, other) in enumerate(zip(wanted.split(), found.split())):
            if one != other:
                raise errors.DataLossError(
                    f"{self.path}: table '{self.name}' is damaged between bytes {i * _BLOCK} and "
                    f"{(i + 1) * _BLOCK} of its elements; export it again"
                )
        if wanted != found:
            raise errors.DataLossError(f"{self.path}: table '{self.name}' has too few checksums")

    def __repr__(self) -> str:
        return f"<table {self.name} {self.dtype} {list(self.shape)} of {self.path}>"


def _header_of(path: str) -> tuple[dict[str, Any], int]:
    """What a file says is in it, and where its data begins."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(_MAX_HEADER, size - 8):
                raise errors.InvalidArgumentError(
                    f"{path} is no file of tables, or was cut; write it again"
                )
            text = file.read(length)
    except FileNotFoundError:
        raise errors.NotFoundError(f"there is no file of tables {path}") from None
    except IsADirectoryError:
        raise errors.InvalidArgumentError(f"{path} is a folder; tables are one file") from None
    try:
        header = json.loads(text)
        for name, entry in header.items():
            if name != "__metadata__":
                _check(name, entry, size - 8 - length)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.InvalidArgumentError(
            f"{path} is no file of tables, or is damaged: {error}"
        ) from None
    return header, 8 + length


def _check(name: str, entry: Mapping[str, Any], size: int) -> None:
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= size:
        raise ValueError(f"'{name}' lies behind the end of the file; it was cut")
    if any(type(n) is not int or n < 0 for n in entry["shape"]):
        raise ValueError(f"'{name}' has the shape {entry['shape']}")
    kind = _TYPES.get(entry["dtype"])
    count = 1
    for extent in entry["shape"]:
        count *= extent
    if kind is not None and count * kind.itemsize != end - begin:
        raise ValueError(f"'{name}' has {end - begin} bytes, which are not {entry['shape']}")


__all__ = ["TableFile", "write_tables"]
