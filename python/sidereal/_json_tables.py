"""Lines of JSON as Arrow tables in which cells have the text of the lines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import errors
from ._remote_files import needed

#: From here on doubles have an exponent in their text, and soon are no longer exact.
_LARGE = 10**15


def table_of_lines(block: bytes, path: str, before: int) -> Any:
    """A block of JSON lines, which stands behind so many. Cells have the text they have in the
    file: what Arrow would make of it, a time or a double, depends on the cells around."""
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


__all__ = ["table_of_lines"]
