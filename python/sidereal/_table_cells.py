"""Columns of Arrow tables as cells of CSV, and tables as its text."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ._remote_files import needed

#: Bytes of cells that become a piece of text at most, where they are of several rows.
_PIECE_BYTES = 4 << 20


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


__all__ = ["cells_of", "flat_columns", "text_pieces"]
