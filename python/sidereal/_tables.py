"""Tables as data: specs of tables in files or in memory, and datasets of their batches."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import _native, dtypes, errors
from ._data_spec import DataSpec, HeldFiles, csv
from ._datasets import Dataset
from ._engine import ENGINE
from ._remote_files import needed, scheme_of
from ._table_cells import cells_of, flat_columns
from ._table_readers import OF_ONE_TYPE, batches, is_table, written
from .function import TensorSpec

#: Rows that are read at once for smaller batches.
_READ_ROWS = 1 << 16


def table(*data: Any, format: str = "csv", **options: Any) -> DataSpec:
    """Tables to train on: files as of csv(), with its options, or one table in memory: a DataFrame
    of pandas or polars, an Arrow table, a dict of columns, or something that gives such batches (a
    DataLoader, a generator). Tables in memory reach workers on this machine only.

        spec = sr.data.table("s3://bucket/day_*.parquet", label="click", numeric=["price"])
        spec = sr.data.table(frame, label="click", numeric=["price"])
    """
    if data and all(isinstance(one, (str, os.PathLike)) for one in data):
        return csv(*data, format=format, **options)
    if len(data) != 1:
        raise TypeError("table() takes names of files, or one table in memory")
    if format != "csv":
        raise TypeError(f"format={format!r} is of files; a table in memory has none")
    one = data[0]
    if not is_table(one) and not hasattr(one, "__iter__") and not callable(one):
        raise TypeError(
            f"{type(one).__name__} is no table; give names of files, a DataFrame, an Arrow table, "
            "a dict of columns, or something that gives such batches"
        )
    parts = [one] if is_table(one) else (one() if callable(one) else one)
    name, file = written(iter(parts), "data")
    held = HeldFiles([name], file)
    weakref.finalize(held, file.close)
    return replace(csv(name, **options), files=held)


class TableDataset(Dataset):
    """Batches of the rows of tables in files, as dicts of columns: numbers, and strings. Formats
    and places are those of sidereal.data.csv(); what is read is read in this process.

    files: names and patterns. columns: which (all). format: of files whose names do not say it.
    fill: what an empty cell of a column of integers or bools counts as; those of other numbers are
    NaN, and of strings empty. num_shards, index: whole files where there are enough for all shards,
    else every n-th row.
    """

    def __init__(
        self,
        files: Any,
        batch_size: int,
        columns: Sequence[str] | None = None,
        *,
        format: str = "csv",
        fill: Mapping[str, Any] | None = None,
        drop_remainder: bool = False,
        num_shards: int = 1,
        index: int = 0,
    ) -> None:
        if batch_size < 1:
            raise errors.InvalidArgumentError(f"batch_size is {batch_size}; it must be at least 1")
        if not 0 <= index < num_shards:
            raise errors.InvalidArgumentError(
                f"index is {index}; of {num_shards} shards it is from 0 to {num_shards - 1}"
            )
        is_one = isinstance(files, (str, os.PathLike))
        patterns = [os.fspath(one) for one in ([files] if is_one else files)]
        names = _native.table_files(patterns, format, ",")[0]
        every = 1 if len(names) >= num_shards else num_shards
        mine = names[index::num_shards] if every == 1 else names
        rows = max(_READ_ROWS // batch_size, 1) * batch_size

        def chunks() -> Iterator[dict[str, Any]]:
            before, kinds = 0, dict[str, Any]()
            for name in mine:
                kind, path, _ = _native.table_file(name)
                for batch, _ in batches(path, kind, columns, rows):
                    if not batch.num_rows:
                        continue
                    found = arrays_of(batch, path, fill or {}, columns or ())
                    kinds = kinds or {key: _dtype_of(value) for key, value in found.items()}
                    _check_kinds(found, kinds, path)
                    if every > 1:
                        begin = (index - before) % every
                        before += batch.num_rows
                        found = {key: _strided(value, begin, every) for key, value in found.items()}
                    yield found

        def generate() -> Iterator[dict[str, Any]]:
            found = begun.pop() if begun else chunks()
            for one in _rebatched(found, batch_size, drop_remainder):
                yield {key: _tensor_of(value) for key, value in one.items()}

        looked = chunks()
        first = next(looked, None)
        if first is None:
            raise errors.InvalidArgumentError(f"{', '.join(patterns)}: there are no rows")
        # The first iteration goes on from here; connections to other places do not last so long.
        is_local = not any(map(scheme_of, mine))
        begun = [itertools.chain([first], looked)] if is_local else []
        signature = {
            name: TensorSpec(
                (None,), value.dtype if isinstance(value, np.ndarray) else dtypes.string
            )
            for name, value in first.items()
        }
        made = Dataset.from_generator(generate, output_signature=signature)
        super().__init__(made._definition, made._spec, [made])


def arrays_of(
    batch: Any, path: str, fill: Mapping[str, Any], wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """The columns of an Arrow batch as NumPy's arrays, those of text as Arrow's of bytes without
    missing ones. Those that are neither numbers nor text are left out, and an error if they are
    wanted."""
    arrow, compute = needed("pyarrow", path), needed("pyarrow.compute", path)
    types = arrow.types
    found: dict[str, Any] = {}
    for name, column in flat_columns(batch):
        kind = column.type
        if types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if types.is_decimal(kind):
            column, kind = column.cast(arrow.float64()), arrow.float64()
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            cells = cells_of(column)
            if cells is not None:
                is_large = types.is_large_string(cells.type)
                texts = cells.cast(arrow.large_binary() if is_large else arrow.binary())
                found[name] = compute.fill_null(texts, b"") if texts.null_count else texts
            elif name in wanted:
                raise errors.InvalidArgumentError(
                    f"{path}: column '{name}' is {kind}, which is no number, text or list of them; "
                    "leave it out"
                )
            continue
        if column.null_count and not types.is_floating(kind):
            if name not in fill:
                raise errors.InvalidArgumentError(
                    f"{path}: column '{name}' of {kind} has empty cells; say what they count as: "
                    f"fill={{'{name}': 0}}"
                )
            column = compute.fill_null(column, arrow.scalar(fill[name], kind))
        found[name] = column.to_numpy(zero_copy_only=False)
    return found


def _dtype_of(value: Any) -> Any:
    return value.dtype if isinstance(value, np.ndarray) else np.dtype(object)


def _strided(value: Any, begin: int, every: int) -> Any:
    if isinstance(value, np.ndarray):
        return value[begin::every]
    return value.take(needed("pyarrow", "").array(np.arange(begin, len(value), every)))


def _tensor_of(value: Any) -> Any:
    """A column as what becomes a tensor without a Python object for each text."""
    if isinstance(value, np.ndarray):
        return value
    arrow = needed("pyarrow", "")
    _, places, text = value.buffers()
    kind = np.int64 if arrow.types.is_large_binary(value.type) else np.int32
    offsets = np.frombuffer(places or bytes(8), kind)[value.offset : value.offset + len(value) + 1]
    return ENGINE.from_texts(offsets.astype(np.int64), np.frombuffer(text or b"", np.uint8))


def _check_kinds(found: Mapping[str, Any], kinds: Mapping[str, Any], path: str) -> None:
    """Whether columns are those of the first rows, and of their types."""
    if set(found) != set(kinds):
        raise errors.InvalidArgumentError(
            f"{path}: the columns are {', '.join(sorted(found))}, and those of the rows before "
            f"{', '.join(sorted(kinds))}; name those that all have: columns=[...]"
        )
    for name, value in found.items():
        if _dtype_of(value) != kinds[name]:
            was, now = (_kind_name(kind) for kind in (kinds[name], _dtype_of(value)))
            raise errors.InvalidArgumentError(
                f"{path}: the column '{name}' begins as {was} and goes on as {now}; {OF_ONE_TYPE}"
            )


def _kind_name(kind: Any) -> str:
    return "text" if kind.hasobject else str(kind)


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, np.ndarray):
        return np.concatenate([one, other])
    arrow = needed("pyarrow", "")
    # Later blocks of text may have larger offsets.
    return arrow.concat_arrays([one, other.cast(one.type)])


def _rebatched(
    chunks: Iterator[dict[str, Any]], size: int, drop_remainder: bool
) -> Iterator[dict[str, Any]]:
    """The rows of chunks in batches of `size`."""
    left: dict[str, Any] = {}
    for chunk in chunks:
        if left:
            chunk = {name: _joined(left[name], value) for name, value in chunk.items()}
        count = len(next(iter(chunk.values()), ()))
        whole = count - count % size
        for begin in range(0, whole, size):
            yield {name: value[begin : begin + size] for name, value in chunk.items()}
        left = {name: value[whole:] for name, value in chunk.items()} if whole < count else {}
    if left and not drop_remainder:
        yield left


__all__ = ["TableDataset", "table"]
