"""Tables as frames of columns, as feeders send them to the engine (docs/formats/columns.md)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import errors
from ._remote_files import needed
from ._table_cells import (
    as_one,
    cells_of,
    flat_columns,
    is_list,
    list_offsets,
    pieces_of,
    typed_cells,
)
from ._table_readers import batches

#: Rows that are read at once: few enough that the engine soon has the first ones to work on.
_ROWS = 1 << 15

_VERSION = 1
_NONE, _TEXT, _DICTIONARY, _LIST = 0, 11, 12, 13
_NUMBERS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double",
)  # fmt: skip
_KINDS = {name: number for number, name in enumerate(_NUMBERS, 1)}
#: Bytes of a frame, as the engine takes it; and of the dictionaries that go with each.
_FRAME_MAX = 1 << 30
_DICTIONARIES_BYTES = 1 << 20

#: A frame in parts.
Frame = list[bytes | memoryview]


def frames_of(
    path: str, format: str, wanted: Sequence[str] | None
) -> Iterator[tuple[Frame, float]]:
    """The rows of a file in frames, and how much of it has been read. All columns are named whose
    cells are numbers or text; those of the names in `wanted` have cells."""
    names: list[str] = []

    def is_wanted(name: str) -> bool:
        return wanted is None or name.strip(" \t") in wanted

    def choose(schema: Any) -> Sequence[str] | None:
        names[:] = _names_of(schema)
        if wanted is None:
            return None
        chosen = [one.name for one in schema if any(map(is_wanted, _flat_names(one)))]
        # Without any, there would be no rows.
        return chosen or schema.names[:1]

    # Without cells, the reader needs the names alone.
    rows = 1 if wanted is not None and not wanted else _ROWS
    for batch, part in batches(path, format, choose, rows):
        if not names:
            names[:] = _names_of(batch.schema)
        for frame in _frames(batch, names, is_wanted):
            size = sum(map(len, frame))
            if size > _FRAME_MAX:
                raise errors.InvalidArgumentError(
                    f"{path}: a row has {size} bytes, and {_FRAME_MAX} are read at most; leave "
                    "columns out, or cut their cells"
                )
            yield frame, part


def _flat_names(field: Any) -> list[str]:
    arrow = needed("pyarrow", "")
    return [name for name, _ in flat_columns(arrow.schema([field]).empty_table())]


def _names_of(schema: Any) -> list[str]:
    """The columns of a table whose cells are numbers or text."""
    columns = flat_columns(schema.empty_table())
    return [name for name, column in columns if typed_cells(column) is not None]


def _frames(batch: Any, names: Sequence[str], is_wanted: Callable[[str], bool]) -> Iterator[Frame]:
    arrow = needed("pyarrow", "")
    cells: dict[str, Any] = {}
    dictionaries = 0
    for name, column in flat_columns(batch):
        if not is_wanted(name) or (one := typed_cells(column)) is None:
            continue
        if arrow.types.is_dictionary(one.type):
            texts = one.dictionary
            is_small = 0 < len(texts) <= len(one)
            if is_small and dictionaries + texts.nbytes <= _DICTIONARIES_BYTES:
                dictionaries += texts.nbytes
            else:
                one = one.cast(one.type.value_type)
        cells[name] = one
    table = arrow.table(list(cells.values()), names=list(cells)) if cells else None
    parts = [None] if table is None else pieces_of(table)
    for part in parts:
        rows = batch.num_rows if part is None else part.num_rows
        found = {} if part is None else dict(zip(part.column_names, part.columns))
        frame: Frame = [struct.pack("<III", _VERSION, rows, len(names))]
        for name in names:
            encoded = name.encode()
            frame.append(struct.pack("<I", len(encoded)) + encoded)
            if name in found:
                _put(as_one(found[name]), frame)
            else:
                frame.append(bytes([_NONE]))
        yield frame


def _put(cells: Any, frame: Frame) -> None:
    """Appends the cells of a column."""
    arrow = needed("pyarrow", "")
    kind, types = cells.type, arrow.types
    if types.is_null(kind):
        cells, kind = cells.cast(arrow.string()), arrow.string()
    if types.is_dictionary(kind):
        texts = cells.dictionary
        frame += [bytes([_DICTIONARY]), *_validity(cells), struct.pack("<I", len(texts))]
        frame += _texts(texts)
        places = cells.indices.fill_null(0).to_numpy(zero_copy_only=False)
        frame.append(_bytes_of(places.astype(np.uint32, copy=False)))
        return None
    if is_list(kind):
        values = typed_cells(needed("pyarrow.compute", "").list_flatten(cells))
        if is_list(values.type) or types.is_dictionary(values.type):
            values = cells_of(values)
        offsets = list_offsets(cells).astype(np.uint32)
        frame += [bytes([_LIST]), *_validity(cells), _bytes_of(offsets)]
        return _put(values, frame)
    if types.is_string(kind) or types.is_large_string(kind):
        frame += [bytes([_TEXT]), *_validity(cells), *_texts(cells)]
        return None
    frame += [bytes([_KINDS[str(kind)]]), *_validity(cells)]
    width = kind.bit_width // 8
    values = cells.buffers()[1]
    begin = cells.offset * width
    frame.append(memoryview(values or b"")[begin : begin + len(cells) * width])
    return None


def _validity(cells: Any) -> Frame:
    if not cells.null_count:
        return [b"\0"]
    is_there = cells.is_valid().to_numpy(zero_copy_only=False)
    return [b"\1", _bytes_of(np.packbits(is_there, bitorder="little"))]


def _texts(cells: Any) -> Frame:
    """Where texts begin and end, and their bytes."""
    arrow = needed("pyarrow", "")
    _, places, text = cells.buffers()
    kind = np.int64 if arrow.types.is_large_string(cells.type) else np.int32
    if places is None or not len(cells):
        return [struct.pack("<I", 0) * (len(cells) + 1)]
    offsets = np.frombuffer(places, kind)[cells.offset : cells.offset + len(cells) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if first or kind != np.int32:
        offsets = (offsets - first).astype(np.uint32)
    return [_bytes_of(offsets), memoryview(text or b"")[first:last]]


def _bytes_of(array: Any) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


__all__ = ["frames_of"]
