"""Rows of different lengths: sidereal.RaggedTensor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import errors
from .._dispatch import apply, convert
from ._arguments import index_tensor
from .array import concat, expand_dims, fill, reshape, shape, stack
from .array import range as range_of
from .embedding import SparseTensor
from .indexing import boolean_mask, gather, tensor_scatter_nd_update
from .math import add, cast, less, multiply, reduce_max, subtract

__all__ = ["RaggedTensor", "constant"]


class RaggedTensor(NamedTuple):
    """Rows one behind another in `values` [n, ...]; row i is values[row_splits[i]:row_splits[i+1]]
    (tf.RaggedTensor). `row_splits` [rows + 1] is int64 and begins with 0. `values` may be a
    RaggedTensor itself: rows of rows."""

    values: Any
    row_splits: Any

    @classmethod
    def from_row_splits(cls, values: Any, row_splits: Any) -> RaggedTensor:
        """Rows of `values` that begin at `row_splits`, whose last element is their number."""
        kept = values if isinstance(values, RaggedTensor) else convert(values)
        return cls(kept, cast(index_tensor(row_splits), "int64"))

    @classmethod
    def from_row_lengths(cls, values: Any, row_lengths: Any) -> RaggedTensor:
        """Rows of `values` of the given lengths, one behind another."""
        ends = apply("Cumsum", (cast(index_tensor(row_lengths), "int64"),), {"axis": 0})
        return cls.from_row_splits(values, concat([convert([0], "int64"), ends], 0))

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.values.dtype

    @property
    def flat_values(self) -> Any:
        """The elements of all rows, and of rows of rows."""
        inner = self.values
        return inner.flat_values if isinstance(inner, RaggedTensor) else inner

    @property
    def nested_row_splits(self) -> tuple[Any, ...]:
        """The row_splits, outermost first."""
        inner = self.values
        more = inner.nested_row_splits if isinstance(inner, RaggedTensor) else ()
        return (self.row_splits, *more)

    @property
    def ragged_rank(self) -> int:
        """How often rows are in rows: 1, or more."""
        return len(self.nested_row_splits)

    def nrows(self) -> Any:
        """The number of rows, an int64 scalar."""
        return subtract(shape(self.row_splits, "int64")[0], 1)

    def row_lengths(self) -> Any:
        """How many elements each row has, int64."""
        return subtract(self.row_splits[1:], self.row_splits[:-1])

    def value_rowids(self) -> Any:
        """For each of `values` the row it is in, int64."""
        return apply("RepeatIndices", (self.row_lengths(),))

    def to_tensor(
        self, default_value: Any = None, name: str | None = None,
        shape: Sequence[int | None] | None = None,
    ) -> Any:  # fmt: skip
        """The rows as a tensor [rows, longest, ...], filled up with `default_value` (zeros, or
        empty strings). With `shape` [None, width] all rows have `width` elements: longer ones are
        cut."""
        return _to_tensor(self, default_value, shape, name)

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """The elements as a SparseTensor: element j of row i is at [i, j]."""
        columns, extents = _coordinates(self)
        indices = stack(columns, 1, name=name)
        return SparseTensor(indices, self.flat_values, stack(extents, 0))

    def to_list(self) -> list[Any]:
        """The rows as Python lists. Only of tensors that have values."""
        inner = self.values
        items = inner.to_list() if isinstance(inner, RaggedTensor) else inner.numpy().tolist()
        splits = self.row_splits.numpy().tolist()
        return [items[begin:end] for begin, end in itertools.pairwise(splits)]


def _longest(ragged: RaggedTensor) -> Any:
    return reduce_max(concat([ragged.row_lengths(), convert([0], "int64")], 0))


def _places(ragged: RaggedTensor) -> tuple[Any, Any]:
    """For each of the values its row, and its place in the row."""
    rows = ragged.value_rowids()
    count = shape(rows, "int64")[0]
    begins = gather(ragged.row_splits, rows)
    zero, one = convert(0, "int64"), convert(1, "int64")
    return rows, subtract(range_of(zero, count, one), begins)


def _coordinates(ragged: RaggedTensor) -> tuple[list[Any], list[Any]]:
    """The columns of indices of the flat values, and the extents."""
    rows, places = _places(ragged)
    extents = [ragged.nrows(), _longest(ragged)]
    if not isinstance(ragged.values, RaggedTensor):
        if ragged.values.shape is None or len(ragged.values.shape) != 1:
            raise errors.UnimplementedError(
                "only rows of scalars can be sparse; the values have shape "
                f"{ragged.values.shape}: use to_tensor()"
            )
        return [rows, places], extents
    (outer, *inner), (_, *more) = _coordinates(ragged.values)
    return [gather(rows, outer), gather(places, outer), *inner], [*extents, *more]


def _default(values: Any, default_value: Any) -> Any:
    if default_value is None:
        default_value = "" if values.dtype.name == "string" else 0
    return convert(default_value, values.dtype)


def _to_tensor(
    ragged: RaggedTensor, default_value: Any, wanted: Sequence[int | None] | None, name: str | None
) -> Any:
    if wanted is not None and len(wanted) < 2:
        raise errors.InvalidArgumentError("shape must be [None, width]: at least two extents")
    width = None if wanted is None else wanted[1]
    values = ragged.values
    if isinstance(values, RaggedTensor):
        rest = None if wanted is None or len(wanted) < 3 else wanted[1:]
        values = _to_tensor(values, default_value, rest, None)
    rows, places = _places(ragged)
    if width is None:
        extent = _longest(ragged)
    else:
        extent = convert(int(width), "int64")
        kept = less(places, extent)
        rows, places = boolean_mask(rows, kept), boolean_mask(places, kept)
        values = boolean_mask(values, kept)
    inner = shape(values, "int64")[1:]
    size = concat([reshape(multiply(ragged.nrows(), extent), [1]), inner], 0)
    at = expand_dims(add(multiply(rows, extent), places), -1)
    flat = tensor_scatter_nd_update(fill(size, _default(values, default_value)), at, values)
    heads = [ragged.nrows(), extent]
    return reshape(flat, concat([stack(heads, 0), inner], 0), name=name)


def constant(pylist: Any, dtype: Any = None, name: str | None = None) -> RaggedTensor:
    """Rows of a list of lists; of lists in these, rows of rows (tf.ragged.constant)."""
    if not isinstance(pylist, (list, tuple)) or not all(
        isinstance(row, (list, tuple)) for row in pylist
    ):
        raise ValueError(f"{pylist!r:.60} is no list of lists")
    items = [item for row in pylist for item in row]
    lists = [item for item in items if isinstance(item, (list, tuple))]
    if lists and len(lists) != len(items):
        raise ValueError(f"{pylist!r:.60} has lists beside single values")
    lengths = [len(row) for row in pylist]
    if lists:
        return RaggedTensor.from_row_lengths(constant(items, dtype), lengths)
    if not items and dtype is None:
        dtype = "float32"
    return RaggedTensor.from_row_lengths(convert(items, dtype), lengths)
