"""Lines of JSON as Arrow tables in which cells have the text of the lines."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import errors
from ._remote_files import needed

#: From here on doubles have an exponent in their text, and soon are no longer exact.
_LARGE = 10**15
#: Where a block may have an integer from there on, in text too.
_LARGE_INTEGER = re.compile(rb"(?<![\d.])\d{16,}(?![\d.eE])")
#: Bytes by which the types of a first block are guessed: it is long, and guessing reads it.
_SAMPLE = 1 << 16


class LineTables:
    """Tables of the blocks of a file of JSON lines, one after another. Cells have the text they
    have in the file: what Arrow would make of it, a time or a double, depends on the cells around.
    A type that Arrow had guessed wrongly in a block is told it for the next one, so that this need
    not be read again."""

    def __init__(self, path: str) -> None:
        self._path, self._lines = path, 0
        self._told = dict[str, Any]()
        self._order: list[str] | None = None

    def table(self, block: bytes) -> Any:
        """The next block, of whole lines."""
        arrow = needed("pyarrow", self._path)
        try:
            if self._order is None and len(block) > _SAMPLE:
                self._look_at(block[: block.rfind(b"\n", 0, _SAMPLE) + 1])
            table, kinds = self._read(block)
        except arrow.ArrowInvalid as error:
            said = _wrong_line(self._path, self._lines, block, error)
            raise errors.InvalidArgumentError(said) from None
        self._lines += block.count(b"\n")
        self._told = _told_of(kinds)
        # Columns that Arrow is told of come first.
        order = [name for name in self._order or () if name in kinds]
        self._order = [*order, *(name for name in table.column_names if name not in order)]
        return table.select(self._order)

    def _look_at(self, sample: bytes) -> None:
        """The first lines of the first block, from which its types are guessed."""
        arrow = needed("pyarrow", self._path)
        with contextlib.suppress(arrow.ArrowInvalid):
            columns = _columns(_parsed(sample, self._path))
            self._told = _told_of(_written_kinds(columns))
            self._order = list(columns)

    def _read(self, block: bytes) -> tuple[Any, Mapping[str, Any]]:
        """The table of a block, and its types."""
        arrow = needed("pyarrow", self._path)
        table = None
        with contextlib.suppress(arrow.ArrowInvalid):
            table = _parsed(block, self._path, self._told) if self._told else None
        if table is None:
            table = _parsed(block, self._path)
        columns = _columns(table)
        kinds = _written_kinds(columns)
        has_integers = _LARGE_INTEGER.search(block) is not None
        inexact = []
        for name, column in columns.items():
            if not has_integers or not _has_large(column):
                continue
            # Integers of 64 bits, and of more of them.
            for whole in (arrow.uint64(), arrow.decimal128(38, 0)):
                exact = {**kinds, name: _written_kind(column, whole)}
                with contextlib.suppress(arrow.ArrowInvalid):
                    _parsed(block, self._path, exact)
                    kinds = exact
                    break
            else:
                inexact.append(name)
        _check_integers(block, inexact, self._path, self._lines)
        is_right = all(columns[name].type == kind for name, kind in kinds.items())
        return table if is_right else _parsed(block, self._path, kinds), kinds


def _parsed(block: bytes, path: str, kinds: Mapping[str, Any] | None = None) -> Any:
    arrow, reader = needed("pyarrow", path), needed("pyarrow.json", path)
    schema = None if kinds is None else arrow.schema(list(kinds.items()))
    return reader.read_json(
        arrow.BufferReader(block), reader.ReadOptions(block_size=max(len(block) + 1, 1 << 20)),
        reader.ParseOptions(explicit_schema=schema),
    )  # fmt: skip


def _columns(table: Any) -> dict[str, Any]:
    return dict(zip(table.column_names, table.columns))


def _written_kinds(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _written_kind(column) for name, column in columns.items()}


def _told_of(kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the next block that Arrow is told."""
    return {name: kind for name, kind in kinds.items() if _is_told(kind)}


def _is_told(kind: Any) -> bool:
    """Whether Arrow may be told that a column is of that type, and complains where it is not: it
    would make doubles of integers, and structs have orders of their own."""
    types = needed("pyarrow", "").types
    while types.is_list(kind):
        kind = kind.value_type
    return types.is_string(kind) or types.is_uint64(kind)


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


__all__ = ["LineTables"]
