"""Tables as Arrow record batches, out of files of every format of src/sidereal/data/table_formats.h
and out of tables in memory."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import re
import struct
import urllib.error
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import numpy as np

from . import errors
from ._json_tables import LineTables
from ._remote_files import needed, open_file, said_of, scheme_of, size_of
from ._table_cells import flat_columns
from .ops.parsing import RaggedFeature, parse_example
from .records import records_in

#: Rows of a batch of a format that has no batches of its own.
CHUNK_ROWS = 1 << 16
#: Bytes of text that become a batch.
_TEXT_BLOCK = 8 << 20
#: Bytes of records that become a batch.
_RECORDS_BYTES = 8 << 20
#: Examples that are looked at to know which features there are.
_EXAMPLES_SEEN = 256

#: What is raised for gzip data that is damaged or cut off.
PACKED_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)

#: What to do about a column of several types.
OF_ONE_TYPE = (
    "write all of its numbers alike from the first row on (1.0, not 1, where others have a point), "
    "or store the table as Parquet, which says types"
)

#: A reader's answers: a record batch, and how much of the file has been read, 0 to 1.
Batches = Iterator[tuple[Any, float]]
#: Columns that are wanted: their names, None: all; or what chooses them, which is asked about the
#: schema of a file that has one before its rows are read. Others are read whole then.
Columns = Sequence[str] | Callable[[Any], Sequence[str] | None] | None


def _parquet(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    parquet = needed("pyarrow.parquet", path)
    found = parquet.ParquetFile(file, pre_buffer=True)
    total, done = max(found.metadata.num_rows, 1), 0
    names = _names(columns, found.schema_arrow)
    for batch in found.iter_batches(rows, columns=names):
        done += batch.num_rows
        yield batch, done / total
    if not done:
        yield _without_rows(found.read(columns=names).schema), 1.0


def _arrow(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
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


def _orc(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    orc = needed("pyarrow.orc", path)
    found = orc.ORCFile(file)
    names = _names(columns, found.schema)
    if not found.nrows:
        yield _without_rows(found.read(columns=names).schema), 1.0
    for i in range(found.nstripes):
        batch = found.read_stripe(i, columns=names)
        yield from ((part, (i + 1) / found.nstripes) for part in _cut(batch, rows))


def _json_lines(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    """Types are those that each block of lines has; the first one says which columns there are."""
    arrow, size, tables = needed("pyarrow", path), max(size_of(path), 1), LineTables(path)
    kinds: dict[str, Any] = {}
    file = unpacked(file)
    while block := file.read(_TEXT_BLOCK):
        block += file.readline()
        table = tables.table(block)
        if (given := _given(columns)) is not None:
            kept = {name: arrow.string() for name in given}
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


def _tfrecord(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    arrow = needed("pyarrow", path)
    size, done = max(size_of(path), 1), 0
    records, features = records_in(unpacked(file), path), dict[str, Any]()
    while some := _some(records, rows):
        if not features:
            try:
                features = _features(some[:_EXAMPLES_SEEN])
            except (IndexError, KeyError, AttributeError, TypeError):
                raise errors.InvalidArgumentError(
                    f"{path}: its records are no tf.train.Example; read them with "
                    "sidereal.data.TFRecordDataset"
                ) from None
            if (given := _given(columns)) is not None:
                features = {name: features[name] for name in given if name in features}
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


def _npz(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    loaded = np.load(_seekable(file), allow_pickle=False)
    arrays = {name: loaded[name] for name in loaded.files}
    yield from _of_arrays(arrays, path, columns, rows)


def _npy(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
    array = np.load(_seekable(file), allow_pickle=False)
    if array.dtype.names is None:
        yield from _of_arrays({"x": array}, path, columns, rows)
        return
    yield from _of_arrays({name: array[name] for name in array.dtype.names}, path, columns, rows)


def _of_arrays(arrays: Mapping[str, Any], path: str, columns: Columns, rows: int) -> Batches:
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
    given = _given(columns)
    names = list(flat) if given is None else list(given)
    for begin in range(0, max(count, 1), rows):
        part = {name: arrow.array(flat[name][begin : begin + rows]) for name in names}
        yield arrow.record_batch(part), min((begin + rows) / max(count, 1), 1.0)


def _wrong_cell(path: str, delimiter: str, error: Exception) -> Exception:
    """What is said of a cell that is not of the type that the first ones of its column have."""
    said = re.search(r"column #(\d+): .*conversion error to (\S+): (.*)", str(error))
    if said is None:
        return error
    with io.TextIOWrapper(unpacked(open_file(path)), "utf-8-sig", "replace", "") as text:
        names = next(csv.reader(text, delimiter=delimiter))
    return errors.InvalidArgumentError(
        f"{path}: the column '{names[int(said[1])]}' begins as {said[2]} and goes on otherwise "
        f"({said[3]}); {OF_ONE_TYPE}"
    )


class _Following:
    """A file whose next bytes have been read already, as Arrow reads files."""

    closed = False

    def __init__(self, begin: bytes, file: BinaryIO) -> None:
        self._begin, self._file = begin, file

    def read(self, size: int) -> bytes:
        found, self._begin = self._begin[:size], self._begin[size:]
        return found or self._file.read(size)


def _filled_up(begin: bytes, file: BinaryIO) -> bytes:
    """`begin` and what follows it in a file: a block of text, or less at the file's end."""
    parts, size = [begin], len(begin)
    while size < _TEXT_BLOCK and (part := file.read(_TEXT_BLOCK - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _cut_lines(block: bytes, names: bytes) -> int:
    """The bytes of a block's whole lines. 0: it has none but the names of columns, `names`, or a
    cell may have an end of line in it, as there are quotes outside of these."""
    if names.count(b'"') % 2 or block.find(b'"', len(names)) >= 0:
        return 0
    end = len(block) if len(block) < _TEXT_BLOCK else block.rfind(b"\n") + 1
    return end if end > len(names) else 0


def _text(delimiter: str) -> Callable[..., Batches]:
    def read(file: BinaryIO, path: str, columns: Columns, rows: int) -> Batches:
        arrow, text = needed("pyarrow", path), needed("pyarrow.csv", path)
        parse = text.ParseOptions(delimiter=delimiter, newlines_in_values=True)

        def options(block_size: int, kinds: Any) -> dict[str, Any]:
            fields = kinds or ()
            types = {field.name: field.type for field in fields}
            if len(types) < len(fields):  # Two columns of one name.
                types = {}
            return {
                "parse_options": parse,
                "read_options": text.ReadOptions(block_size=block_size),
                "convert_options": text.ConvertOptions(
                    column_types=types, include_columns=_given(columns)
                ),
            }

        def lines(block: bytes, kinds: Any) -> Any:
            """Read by all processors, in smaller blocks; these may be too small for a line."""

            def read_by(size: int) -> Any:
                return text.read_csv(arrow.BufferReader(block), **options(size, kinds))

            try:
                return read_by(_TEXT_BLOCK // 8)
            except arrow.ArrowInvalid:
                return read_by(len(block) + 1)

        try:
            file, kinds = unpacked(file), None
            block = _filled_up(b"", file)
            names = block[: block.find(b"\n") + 1]
            while end := _cut_lines(block, names):
                table = lines(block[:end], kinds)
                if kinds is None:
                    kinds = table.schema
                    yield _without_rows(kinds), 0.0
                for batch in table.combine_chunks().to_batches(rows):
                    yield batch, 0.0
                block = _filled_up(names + block[end:], file)
                if block == names:
                    break
            if block != names or kinds is None:
                found = text.open_csv(_Following(block, file), **options(_TEXT_BLOCK, kinds))
                yield _without_rows(found.schema), 0.0
                yield from ((part, 0.0) for batch in found for part in _cut(batch, rows))
        except arrow.ArrowInvalid as error:
            raise _wrong_cell(path, delimiter, error) from None

    return read


#: By the names of src/sidereal/data/table_formats.cc.
READERS: dict[str, Callable[[BinaryIO, str, Columns, int], Batches]] = {
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


def _given(columns: Columns) -> Sequence[str] | None:
    return None if callable(columns) else columns


def _names(columns: Columns, schema: Any) -> list[str] | None:
    chosen = columns(schema) if callable(columns) else columns
    return None if chosen is None else list(chosen)


def _selected(batch: Any, columns: Columns) -> Any:
    names = _names(columns, batch.schema)
    return batch if names is None else batch.select(names)


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


def batches(path: str, format: str, columns: Columns = None, rows: int = CHUNK_ROWS) -> Batches:
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
    "CHUNK_ROWS", "OF_ONE_TYPE", "PACKED_ERRORS", "READERS", "as_arrow", "batches", "damaged",
    "is_table", "unpacked", "written",
]  # fmt: skip
