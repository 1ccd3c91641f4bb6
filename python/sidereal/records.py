"""tf.train.Example messages and files of records, without TensorFlow."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np

from . import _native, errors
from ._native import Tensor

_BYTES, _FLOATS, _INTS = 1, 2, 3  # The numbers of the fields of Feature.


def encode_example(features: Mapping[str, Any]) -> bytes:
    """A serialized tf.train.Example with the given features, sorted by name: bytes, str (as UTF-8)
    and lists of them as a list of bytes, integers and bools as int64, other numbers as float
    (float32; infinite beyond its range). Values are single ones, lists, arrays or tensors, whose
    elements are taken row by row. An empty list gives a feature of no kind."""
    entries = []
    for key in sorted(features):
        kind, content = _list(key, features[key])
        feature = _field(kind, content) if kind else b""
        entries.append(_field(1, _field(1, key.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _list(key: str, value: Any) -> tuple[int, bytes]:
    """The number of the list's field in Feature, 0 for none, and the list."""
    if isinstance(value, (str, bytes)):
        return _BYTES, _field(1, _as_bytes(value))
    # Single numbers are most of what is written, and need no array.
    if type(value) is float and abs(value) < 3e38:
        return _FLOATS, _field(1, struct.pack("<f", value))
    if type(value) is int and abs(value) < 1 << 63:
        return _INTS, _field(1, _varint(value))
    if isinstance(value, Tensor):
        value = value.numpy()
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=_kind_of(value))
    if array.dtype.kind in "OSU":
        items = array.ravel().tolist()
        if not all(isinstance(item, (str, bytes)) for item in items):
            raise errors.InvalidArgumentError(
                f"feature '{key}' is {value!r:.60}; give strings, or numbers within int64 or float"
            )
        if not items and not isinstance(value, np.ndarray):
            return 0, b""
        return _BYTES, b"".join(_field(1, _as_bytes(item)) for item in items)
    if array.dtype.kind in "iub":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise errors.InvalidArgumentError(f"feature '{key}' has integers beyond int64")
        return _INTS, _packed(b"".join(map(_varint, array.ravel().tolist())))
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return _FLOATS, _packed(array.ravel().astype("<f4").tobytes())
    raise errors.InvalidArgumentError(f"feature '{key}' is {value!r:.60}; it is no list of values")


def _kind_of(value: Any) -> Any:
    """object for strings: NumPy's own arrays of bytes drop zero bytes at the end."""
    item = value
    while isinstance(item, (list, tuple)):
        if not item:
            return object
        item = item[0]
    return object if isinstance(item, (str, bytes)) else None


def _as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


#: The tags of fields of bytes, and numbers of one byte.
_TAGS = [bytes([number << 3 | 2]) for number in range(4)]
_SMALL = [bytes([number]) for number in range(128)]


def _field(number: int, content: bytes) -> bytes:
    size = len(content)
    return _TAGS[number] + (_SMALL[size] if size < 128 else _varint(size)) + content


def _packed(content: bytes) -> bytes:
    return _field(1, content) if content else b""


# --- Files of records: u64 length, its checksum, the bytes, their checksum; all little-endian.


def masked_crc(content: bytes) -> int:
    """The CRC-32C, turned and moved, so that checksums of bytes with checksums in them differ."""
    crc = _native.crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _compression(options: str | None) -> bool:
    if options not in (None, "", "GZIP"):
        raise errors.UnimplementedError(f"compression '{options}' is not known; use '' or 'GZIP'")
    return options == "GZIP"


class TFRecordWriter:
    """Writes records of bytes to a file of TensorFlow's format (tf.io.TFRecordWriter), also
    compressed (`options` "GZIP"). A context manager."""

    def __init__(self, path: str | os.PathLike[str], options: str | None = None) -> None:
        compressed = _compression(options)
        self._file: Any = gzip.open(path, "wb") if compressed else open(path, "wb")  # noqa: SIM115

    def write(self, record: bytes) -> None:
        """Appends one record."""
        length = struct.pack("<Q", len(record))
        head = length + struct.pack("<I", masked_crc(length))
        self._file.write(head + record + struct.pack("<I", masked_crc(record)))

    def flush(self) -> None:
        """Hands what is written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Ends the file. Again: nothing."""
        self._file.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def tf_record_iterator(path: str | os.PathLike[str], options: str | None = None) -> Iterator[bytes]:
    """The records of a file of TensorFlow's format, one after another
    (tf.compat.v1.io.tf_record_iterator). DataLossError names the file and the byte where a checksum
    is wrong or the file ends too early; no more memory is taken than the file has bytes."""
    compressed = _compression(options)
    opened: Any = gzip.open if compressed else open
    with opened(path, "rb") as file:
        at = 0
        try:
            for record in records_in(file, path):
                at += 16 + len(record)
                yield record
        except (OSError, EOFError) as error:
            raise _broken(path, "cut off", at, at, str(error)) from None


def records_in(file: IO[bytes], path: Any) -> Iterator[bytes]:
    """The records of a file that is open; `path` names it in errors, which are those of
    tf_record_iterator(). What reading raises is not caught."""
    at = 0
    while True:
        head = _read(file, 12, path, at, at, may_end=True)
        if not head:
            return
        length, crc = struct.unpack("<QI", head)
        # Before memory is taken: what is no length may be of any size.
        if crc != masked_crc(head[:8]):
            raise _broken(path, "none", at, at, "the checksum of a length is wrong")
        content = _read(file, length, path, at, at + 12)
        (crc,) = struct.unpack("<I", _read(file, 4, path, at, at + 12 + length))
        if crc != masked_crc(content):
            raise _broken(path, "damaged", at, at + 12, "the checksum of a record is wrong")
        yield content
        at += 16 + length


_CHUNK = 1 << 24


def _read(
    file: IO[bytes], count: int, path: Any, start: int, at: int, may_end: bool = False
) -> bytes:
    """Exactly `count` bytes of the record at `start`, asked for in pieces: a length may lie."""
    pieces = []
    left = count
    while left > 0:
        piece = file.read(min(left, _CHUNK))
        if not piece:
            if may_end and left == count:
                return b""
            why = f"the file ends where {left} more bytes are expected"
            raise _broken(path, "cut off", start, at, why)
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _broken(path: Any, how: str, start: int, at: int, why: str) -> errors.DataLossError:
    """`start`: of the record; `at`: what is wrong is there."""
    what = f"the record at byte {start} is {how}"
    if how == "none":
        what = f"at byte {start} there is no record; is this a file of TFRecords?"
    return errors.DataLossError(
        f"{os.fspath(path)}: {what}; byte {at}: {why}; fetch or write the file again"
    )
