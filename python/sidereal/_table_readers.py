"""Tables as Arrow record batches, out of files of every format of src/sidereal/data/table_formats.h
and out of tables in memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import struct
import urllib.error
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import numpy as np

from . import errors
from ._remote_files import needed, open_file, said_of, scheme_of, size_of
from .ops.parsing import RaggedFeature, parse_example
from .records import masked_crc

#: Rows of a batch of a format that has no batches of its own.
CHUNK_ROWS = 1 << 16
#: Bytes of text that become a batch.
_TEXT_BLOCK = 8 << 20
#: From here on doubles have an exponent in their text, and soon are no longer exact.
_LARGE = 10**15
#: Bytes of cells that become a piece of text at most, where they are of several rows.
_PIECE_BYTES = 4 << 20
#: Bytes of records that become a batch.
_RECORDS_BYTES = 8 << 20
#: Examples that are looked at to know which features there are.
_EXAMPLES_SEEN = 256

#: What is raised for gzip data that is damaged or cut off.
PACKED_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)

#: A reader's answers: a record batch, and how much of the file has been read, 0 to 1.
Batches = Iterator[tuple[Any, float]]


def _parquet(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    parquet = needed("pyarrow.parquet", path)
    found = parquet.ParquetFile(file, pre_buffer=True)
    total, done = max(found.metadata.num_rows, 1), 0
    names = None if columns is None else list(columns)
    for batch in found.iter_batches(rows, columns=names):
        done += batch.num_rows
        yield batch, done / total
    if not done:
        yield _without_rows(found.read(columns=names).schema), 1.0


def _arrow(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    arrow = needed("pyarrow", path)
    try:
        found = arrow.ipc.open_file(file)
    except arrow.ArrowInvalid:
        file.seek(0)
        stream: Any = arrow.ipc.open_stream(file)
        yield _selected(_without_rows(stream.schema), columns), 0.0
        for batch in stream:
            yield from ((part, 0.0) for part in _cut(_selected(batch, columns), rows))
        return
    yield _selected(_without_rows(found.schema), columns), 0.0
    for i in range(found.num_record_batches):
        batch = _selected(found.get_batch(i), columns)
        yield from ((part, (i + 1) / found.num_record_batches) for part in _cut(batch, rows))


def _orc(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    orc = needed("pyarrow.orc", path)
    found = orc.ORCFile(file)
    names = None if columns is None else list(columns)
    if not found.nrows:
        yield _without_rows(found.read(columns=names).schema), 1.0
    for i in range(found.nstripes):
        batch = found.read_stripe(i, columns=names)
        yield from ((part, (i + 1) / found.nstripes) for part in _cut(batch, rows))


def _json_lines(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    """Types are those that each block of lines has; the first one says which columns there are."""
    arrow, size, line = needed("pyarrow", path), max(size_of(path), 1), 0
    kinds: dict[str, Any] = {}
    file = unpacked(file)
    while block := file.read(_TEXT_BLOCK):
        block += file.readline()
        table = _table_of_lines(block, path, line)
        line += block.count(b"\n")
        if columns is not None:
            kept = {name: arrow.string() for name in columns}
            table = _filled(dict(zip(table.column_names, table.columns)), kept, table.num_rows)
        # Structs may have other fields in the next block.
        found = dict(flat_columns(table))
        kinds = kinds or {name: column.type for name, column in found.items()}
        part = _filled(found, kinds, table.num_rows).combine_chunks()
        for batch in part.to_batches(max_chunksize=rows):
            yield batch, min(file.tell() / size, 1.0)


def _filled(found: Mapping[str, Any], kinds: Mapping[str, Any], rows: int) -> Any:
    """A table of the columns of `kinds`: nulls of their types where nothing was found."""
    arrow = needed("pyarrow", "")
    columns = []
    for name, kind in kinds.items():
        column = found.get(name)
        is_there = column is not None and not arrow.types.is_null(column.type)
        columns.append(column if is_there else arrow.nulls(rows, kind))
    return arrow.table(columns, names=list(kinds))


def _table_of_lines(block: bytes, path: str, before: int) -> Any:
    """A block of JSON lines, which stands behind so many. Cells have the text they have in the file:
    what Arrow would make of it, a time or a double, depends on the cells around."""
    arrow, reader = needed("pyarrow", path), needed("pyarrow.json", path)
    options = reader.ReadOptions(block_size=max(len(block) + 1, 1 << 20))

    def read(kinds: Mapping[str, Any] | None = None) -> Any:
        schema = None if kinds is None else arrow.schema(list(kinds.items()))
        parse = reader.ParseOptions(explicit_schema=schema)
        return reader.read_json(arrow.BufferReader(block), options, parse)

    try:
        table = read()
        columns = dict(zip(table.column_names, table.columns))
        kinds = {name: _written_kind(column) for name, column in columns.items()}
        inexact = []
        for name, column in columns.items():
            if not _has_large(column):
                continue
            # Integers of 64 bits, and of more of them.
            for whole in (arrow.uint64(), arrow.decimal128(38, 0)):
                exact = {**kinds, name: _written_kind(column, whole)}
                with contextlib.suppress(arrow.ArrowInvalid):
                    read(exact)
                    kinds = exact
                    break
            else:
                inexact.append(name)
        _check_integers(block, inexact, path, before)
        is_right = all(columns[name].type == kind for name, kind in kinds.items())
        return table if is_right else read(kinds)
    except arrow.ArrowInvalid as error:
        raise errors.InvalidArgumentError(_wrong_line(path, before, block, error)) from None


def _leaves(column: Any) -> Iterator[Any]:
    """The arrays that the lists and structs of a column have in them."""
    arrow, compute = needed("pyarrow", ""), needed("pyarrow.compute", "")
    if arrow.types.is_list(column.type):
        yield from _leaves(compute.list_flatten(column))
    elif arrow.types.is_struct(column.type):
        for one in column.flatten():
            yield from _leaves(one)
    else:
        yield column


def _is_large(column: Any) -> bool:
    """Whether an array has doubles whose text is another than that of the integer they may be."""
    arrow, compute = needed("pyarrow", ""), needed("pyarrow.compute", "")
    if not arrow.types.is_floating(column.type):
        return False
    most = compute.max(compute.abs(column)).as_py()
    return most is not None and most >= _LARGE


def _has_large(column: Any) -> bool:
    return any(map(_is_large, _leaves(column)))


def _written_kind(column: Any, whole: Any = None) -> Any:
    """The type of a column by which its text stays; `whole`: that of large doubles."""
    arrow, compute = needed("pyarrow", ""), needed("pyarrow.compute", "")
    kind, types = column.type, arrow.types
    if types.is_list(kind):
        return arrow.list_(_written_kind(compute.list_flatten(column), whole))
    if types.is_struct(kind):
        parts = zip(kind, column.flatten())
        return arrow.struct([(field.name, _written_kind(one, whole)) for field, one in parts])
    if types.is_temporal(kind):
        return arrow.string()
    return whole if whole is not None and _is_large(column) else kind


def _check_integers(block: bytes, names: Sequence[str], path: str, before: int) -> None:
    """Complains of large integers in columns that are read as doubles."""

    def large(value: Any) -> Any:
        if isinstance(value, (list, dict)):
            parts = value.values() if isinstance(value, dict) else value
            return next((found for found in map(large, parts) if found is not None), None)
        return value if isinstance(value, int) and abs(value) >= _LARGE else None

    for number, line in enumerate(block.splitlines() if names else (), before + 1):
        row = json.loads(line) if line.strip() else {}
        for name in names:
            found = large(row.get(name))
            if found is not None:
                raise errors.InvalidArgumentError(
                    f"{path}:{number}: the column '{name}' has {found} and numbers with a point or "
                    "an exponent, as one of which it would be another number; write all of the "
                    "column's as text, in quotes"
                )


def _wrong_line(path: str, before: int, block: bytes, error: Exception) -> str:
    """What is wrong in a block of JSON lines, which stands behind so many."""
    lines = block.splitlines()
    for number, line in enumerate(lines, before + 1):
        try:
            is_object = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError as wrong:
            return f"{path}:{number}: this is no JSON ({wrong}); a line must be one object"
        if not is_object:
            return f"{path}:{number}: this is no JSON object; a line must be one"
    text = " ".join(str(error).split())
    return (
        f"{path}: lines {before + 1} to {before + len(lines)}: {text}; the values of a key must be "
        "of one type"
    )


def _records(file: BinaryIO, path: str) -> Iterator[bytes]:
    file, at = unpacked(file), 0
    while head := file.read(12):
        # The checksum first: what is no length may be of any size.
        if len(head) == 12 and masked_crc(head[:8]) != struct.unpack("<I", head[8:])[0]:
            raise errors.DataLossError(
                f"{path}: at byte {at} there is no record: this is no file of TFRecords, or "
                "damaged; fetch or write the file again"
            )
        size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
        body = file.read(size + 4) if len(head) == 12 else b""
        if len(head) < 12 or len(body) < size + 4:
            raise errors.DataLossError(
                f"{path}: the record at byte {at} is cut off; fetch or write the file again"
            )
        record = body[:size]
        if masked_crc(record) != struct.unpack("<I", body[size:])[0]:
            raise errors.DataLossError(
                f"{path}: the record at byte {at} is damaged (its checksum is another); fetch or "
                "write the file again"
            )
        yield record
        at += 16 + size


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protocol buffers: (number, bytes or integer)."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size
        elif key & 7 == 0:
            yield key >> 3, varint()
        else:
            at += 8 if key & 7 == 1 else 4


def _features(examples: Sequence[bytes]) -> dict[str, Any]:
    """What stands in some tf.train.Examples: feature -> its dtype."""
    kinds = {1: "string", 2: "float32", 3: "int64"}
    found: dict[str, Any] = {}
    for example in examples:
        for _, features in _fields(example):
            for _, entry in _fields(features):
                parts = dict(_fields(entry))
                for kind, _ in _fields(parts.get(2, b"")):
                    found.setdefault(parts[1].decode(), kinds[kind])
    return found


def _some(records: Iterator[bytes], rows: int) -> list[bytes]:
    """The next records, at most so many, and not many more bytes than a batch should have."""
    found, size = list[bytes](), 0
    for record in itertools.islice(records, rows):
        found.append(record)
        size += len(record)
        if size >= _RECORDS_BYTES:
            break
    return found


def _tfrecord(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    arrow = needed("pyarrow", path)
    size, done = max(size_of(path), 1), 0
    records, features = _records(file, path), dict[str, Any]()
    while some := _some(records, rows):
        if not features:
            try:
                features = _features(some[:_EXAMPLES_SEEN])
            except (IndexError, KeyError, AttributeError, TypeError):
                raise errors.InvalidArgumentError(
                    f"{path}: its records are no tf.train.Example; read them with "
                    "sidereal.data.TFRecordDataset"
                ) from None
            if columns is not None:
                features = {name: features[name] for name in columns if name in features}
        wanted = {name: RaggedFeature(kind) for name, kind in features.items()}
        made, done = {}, done + sum(map(len, some)) + 16 * len(some)
        for name, ragged in parse_example(np.array(some, object), wanted).items():
            values = ragged.values.numpy()
            splits = np.asarray(ragged.row_splits.numpy(), np.int32)
            cells = arrow.array(values.tolist() if values.dtype == object else values)
            counts = np.diff(splits)
            if (counts == 1).all():
                made[name] = cells
            elif (counts <= 1).all():
                places = arrow.array(splits[:-1], mask=counts == 0)
                made[name] = cells.take(places)
            else:
                made[name] = arrow.ListArray.from_arrays(arrow.array(splits), cells)
        yield arrow.record_batch(made), min(done / size, 1.0)


def _npz(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    loaded = np.load(_seekable(file), allow_pickle=False)
    arrays = {name: loaded[name] for name in loaded.files}
    yield from _of_arrays(arrays, path, columns, rows)


def _npy(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
    array = np.load(_seekable(file), allow_pickle=False)
    if array.dtype.names is None:
        yield from _of_arrays({"x": array}, path, columns, rows)
        return
    yield from _of_arrays({name: array[name] for name in array.dtype.names}, path, columns, rows)


def _of_arrays(
    arrays: Mapping[str, Any], path: str, columns: Sequence[str] | None, rows: int
) -> Batches:
    arrow = needed("pyarrow", path)
    flat: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and array.shape[1] != 1:
            flat.update({f"{name}_{i}": array[:, i] for i in range(array.shape[1])})
        elif array.ndim in (1, 2):
            flat[name] = array.reshape(-1)
        else:
            raise errors.InvalidArgumentError(
                f"{path}: the array '{name}' has the shape {array.shape}; a column has one number "
                "for each row, or some"
            )
    sizes = {name: len(array) for name, array in flat.items()}
    if len(set(sizes.values())) > 1:
        raise errors.InvalidArgumentError(
            f"{path}: its arrays differ in length: "
            + ", ".join(f"{name} has {n} rows" for name, n in sizes.items())
        )
    count = next(iter(sizes.values()), 0)
    names = list(flat) if columns is None else list(columns)
    for begin in range(0, max(count, 1), rows):
        part = {name: arrow.array(flat[name][begin : begin + rows]) for name in names}
        yield arrow.record_batch(part), min((begin + rows) / max(count, 1), 1.0)


def _text(delimiter: str) -> Callable[..., Batches]:
    def read(file: BinaryIO, path: str, columns: Sequence[str] | None, rows: int) -> Batches:
        csv = needed("pyarrow.csv", path)
        convert = csv.ConvertOptions(include_columns=None if columns is None else list(columns))
        found = csv.open_csv(
            unpacked(file), parse_options=csv.ParseOptions(delimiter=delimiter),
            read_options=csv.ReadOptions(block_size=_TEXT_BLOCK), convert_options=convert,
        )  # fmt: skip
        yield _without_rows(found.schema), 0.0
        yield from ((part, 0.0) for batch in found for part in _cut(batch, rows))

    return read


#: By the names of src/sidereal/data/table_formats.cc.
READERS: dict[str, Callable[[BinaryIO, str, Sequence[str] | None, int], Batches]] = {
    "csv": _text(","),
    "tsv": _text("\t"),
    "parquet": _parquet,
    "json_lines": _json_lines,
    "arrow": _arrow,
    "orc": _orc,
    "tfrecord": _tfrecord,
    "npz": _npz,
    "npy": _npy,
}


def _selected(batch: Any, columns: Sequence[str] | None) -> Any:
    return batch if columns is None else batch.select(list(columns))


def _without_rows(schema: Any) -> Any:
    """A batch of a file that may have none: what columns there are is known all the same."""
    arrow = needed("pyarrow", "")
    columns = [arrow.nulls(0, field.type) for field in schema]
    return arrow.RecordBatch.from_arrays(columns, names=schema.names)


def _cut(batch: Any, rows: int) -> Iterator[Any]:
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def unpacked(file: BinaryIO) -> BinaryIO:
    """The text of a file that may be packed by gzip, told by its content."""
    buffered = file if hasattr(file, "peek") else io.BufferedReader(cast(Any, file), 1 << 20)
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return buffered


def damaged(path: str, error: Exception) -> errors.Error:
    """The error of a file that cannot be unpacked: `error` is one of PACKED_ERRORS."""
    return errors.DataLossError(
        f"{path}: gzip data is damaged or cut off ({error}); fetch or write the file again"
    )


def _seekable(file: BinaryIO) -> BinaryIO:
    return file if file.seekable() else io.BytesIO(file.read())


def _is_of_content(path: str, error: OSError) -> bool:
    """Whether a reader complains of bytes, and not of where they lie: Arrow has one class for both,
    of which file systems of its own say more."""
    if error.errno is not None or isinstance(error, (TimeoutError, urllib.error.URLError)):
        return False
    scheme = scheme_of(path)
    return scheme in ("", "http", "https") or (scheme == "s3" and "AWS Error" not in str(error))


def batches(
    path: str, format: str, columns: Sequence[str] | None = None, rows: int = CHUNK_ROWS
) -> Batches:
    """The rows of a file, at most so many in a batch; a batch may have none, so that a file without
    rows says its columns. Errors name the file."""
    try:
        with open_file(path) as file:
            yield from READERS[format](file, path, columns, rows)
    except PACKED_ERRORS as error:
        raise damaged(path, error) from None
    except errors.Error as error:
        raise said_of(path, error) from None
    except (OSError, ValueError, KeyError, struct.error, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and not _is_of_content(path, error):
            raise said_of(path, error) from None
        raise errors.InvalidArgumentError(
            f"{path}: is not {format}, or damaged ({error}); give its format, or fetch it again"
        ) from None


def flat_columns(batch: Any) -> list[tuple[str, Any]]:
    """The columns of a batch or table as arrays, structs as a column "a.b" for each field."""
    arrow = needed("pyarrow", "")
    table = arrow.Table.from_batches([batch]) if isinstance(batch, arrow.RecordBatch) else batch
    while any(arrow.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return [
        (name, column.combine_chunks()) for name, column in zip(table.column_names, table.columns)
    ]


def cells_of(column: Any) -> Any:
    """An array whose cells CSV can write, numbers or text: lists with "|" between their values, and
    what is no number empty. None of one that is neither: maps, lists of structs, unions."""
    arrow, compute = needed("pyarrow", ""), needed("pyarrow.compute", "")
    kind, types = column.type, arrow.types
    if isinstance(kind, arrow.BaseExtensionType):
        return cells_of(column.storage)
    if types.is_dictionary(kind):
        return cells_of(column.cast(kind.value_type))
    if types.is_map(kind):
        return None
    if any(is_kind(kind) for is_kind in _kinds_of_lists(types)):
        return _joined(column)
    if types.is_boolean(kind):
        return column.cast(arrow.int8())
    if types.is_floating(kind):
        wide = column.cast(arrow.float32()) if types.is_float16(kind) else column
        return compute.if_else(compute.is_nan(wide), None, wide)
    if types.is_large_binary(kind):
        return column.view(arrow.large_string())
    if types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        # Bytes need not be UTF-8: no cast to text, which looks at that.
        return column.cast(arrow.binary()).view(arrow.string())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind):
        return column
    if types.is_integer(kind) or types.is_decimal(kind):
        return column
    try:
        return column.cast(arrow.string())
    except arrow.ArrowNotImplementedError:
        return None


def _kinds_of_lists(types: Any) -> Sequence[Callable[[Any], bool]]:
    return (
        types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view,
        types.is_large_list_view,
    )  # fmt: skip


def _joined(column: Any) -> Any:
    """Lists as texts. A value that is missing is an empty one: the others keep their places."""
    arrow, compute = needed("pyarrow", ""), needed("pyarrow.compute", "")
    values = cells_of(compute.list_flatten(column))
    if values is None:
        return None
    texts = compute.fill_null(values.cast(arrow.large_string()), "")
    counts = compute.fill_null(compute.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    lists = arrow.LargeListArray.from_arrays(
        arrow.array(offsets, arrow.int64()), texts, mask=column.is_null()
    )
    return compute.binary_join(lists, arrow.scalar("|", arrow.large_string()))


def text_pieces(batch: Any, delimiter: str, header: bool) -> Iterator[bytes]:
    """A batch as CSV, in pieces of a few MiB. A column whose cells are no text is left out, as if
    the table had none of its name."""
    arrow = needed("pyarrow", "")
    columns = [(name, cells_of(column)) for name, column in flat_columns(batch)]
    known = [(name, cells) for name, cells in columns if cells is not None]
    table = arrow.table([cells for _, cells in known], names=[name for name, _ in known])
    if header:
        names = [_quoted(name, delimiter) for name in table.column_names]
        yield delimiter.join(names).encode() + b"\n"
    for part in _pieces(table):
        yield _text_of(part, delimiter)


def _pieces(table: Any) -> Iterator[Any]:
    """The rows of a table, of so many that they are small: cells may be of any size."""
    if table.nbytes <= _PIECE_BYTES or table.num_rows < 2:
        yield table
        return
    half = table.num_rows // 2
    yield from _pieces(table.slice(0, half))
    yield from _pieces(table.slice(half))


def _text_of(table: Any, delimiter: str) -> bytes:
    csv, arrow = needed("pyarrow.csv", ""), needed("pyarrow", "")
    for quoting in ("none", "needed"):
        out = io.BytesIO()
        options = csv.WriteOptions(
            include_header=False, delimiter=delimiter, quoting_style=quoting, batch_size=8192
        )
        try:
            csv.write_csv(table, out, options)
            return out.getvalue()
        except arrow.ArrowInvalid:
            if quoting == "needed":
                raise
    raise AssertionError("one of them returns or raises")


def _quoted(name: str, delimiter: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & {delimiter, '"', "\n"} else name


def as_arrow(data: Any) -> Any:
    """A table in memory (pandas, polars, Arrow, or a mapping of columns) as pyarrow's."""
    arrow = needed("pyarrow", "a table in memory")
    if isinstance(data, arrow.Table):
        return data
    if isinstance(data, arrow.RecordBatch):
        return arrow.Table.from_batches([data])
    if isinstance(data, Mapping):
        return arrow.table({str(name): _cells(column) for name, column in data.items()})
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    if hasattr(data, "__arrow_c_stream__"):
        table = arrow.table(data)
        keep = [name for name in table.column_names if not name.startswith("__index_level_")]
        return table.select(keep).replace_schema_metadata(None)
    raise TypeError(
        f"{type(data).__name__} is no table; give a DataFrame, an Arrow table or a dict"
    )


def _cells(column: Any) -> Any:
    array = np.asarray(column.detach().cpu() if hasattr(column, "detach") else column)
    return array.tolist() if array.ndim == 2 else array


def is_table(data: Any) -> bool:
    """Whether as_arrow() takes it."""
    named = hasattr(data, "to_arrow") or hasattr(data, "__arrow_c_stream__")
    return named or isinstance(data, Mapping)


def written(tables: Iterator[Any], name: str) -> tuple[str, BinaryIO]:
    """A file of Arrow's in memory with tables of the same columns, by which processes of this
    machine read them as long as it is open; and how they name it."""
    arrow = needed("pyarrow", name)
    first = as_arrow(next(tables))
    file = os.fdopen(os.memfd_create(f"sidereal-table-{name}"[:100]), "wb")
    with arrow.ipc.new_file(file, first.schema) as out:
        out.write_table(first)
        for table in tables:
            out.write_table(as_arrow(table).cast(first.schema))
    file.flush()
    return f"arrow:/proc/{os.getpid()}/fd/{file.fileno()}", file


__all__ = [
    "CHUNK_ROWS", "PACKED_ERRORS", "READERS", "as_arrow", "batches", "cells_of", "damaged",
    "flat_columns", "is_table", "text_pieces", "unpacked", "written",
]  # fmt: skip
