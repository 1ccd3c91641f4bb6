"""Embedding lookups on tensors. Names and arguments are TensorFlow's. Tables on parameter servers
are read by the layers of a Model; these functions take a tensor or a variable."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import errors
from .._dispatch import apply, convert
from ._arguments import index_tensor
from .array import expand_dims, reshape
from .indexing import boolean_mask, gather
from .sorting import unique

__all__ = [
    "SparseTensor", "embedding_lookup", "embedding_lookup_sparse", "safe_embedding_lookup_sparse",
]  # fmt: skip

_COMBINERS = {"sum": "Sum", "mean": "Mean", "sqrtn": "SqrtN"}


class SparseTensor(NamedTuple):
    """The elements `values` [n] at `indices` [n, rank], sorted by row, of a tensor of `dense_shape`
    whose others are not there (tf.sparse.SparseTensor)."""

    indices: Any
    values: Any
    dense_shape: Any


def _table(params: Any) -> Any:
    if isinstance(params, (list, tuple)):
        if len(params) != 1:
            raise errors.UnimplementedError(
                "a list of tables is not taken: concat() them, or use an embedding of a Model, "
                "which is spread over parameter servers"
            )
        params = params[0]
    return convert(params)


def embedding_lookup(
    params: Any, ids: Any, max_norm: float | None = None, name: str | None = None
) -> Any:
    """The rows of the table `params` at `ids` of any shape (tf.nn.embedding_lookup), those whose
    length is above `max_norm` shortened to it. OutOfRangeError names an id that is no row."""
    rows = gather(_table(params), ids, axis=0, name=name)
    return rows if max_norm is None else _clipped(rows, index_tensor(ids), max_norm)


def _clipped(rows: Any, ids: Any, max_norm: float) -> Any:
    """Each row shortened to `max_norm`."""
    squares = apply("Square", (rows,))
    axes = list(range(len(ids.shape), len(rows.shape)))
    if not axes:
        return apply("Minimum", (rows, convert(max_norm, rows.dtype)))
    norm = apply("Sqrt", (apply("ReduceSum", (squares,), {"axes": axes, "keep_dims": True}),))
    limit = convert(max_norm, rows.dtype)
    return apply("Div", (apply("Mul", (rows, limit)), apply("Maximum", (norm, limit))))


def embedding_lookup_sparse(
    params: Any, sp_ids: SparseTensor, sp_weights: SparseTensor | None, combiner: str | None = None,
    max_norm: float | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """For each row of `sp_ids` the rows of the table at its ids, combined
    (tf.nn.embedding_lookup_sparse): their sum, their mean (also None) or, 'sqrtn', their sum over
    the root of the sum of squares of weights. With `sp_weights`, which has the same places as
    sp_ids, each row is weighted and a mean is divided by the sum of weights.

    The result is [rows, ...]; a row without ids at the end is left out, in between it is zeros.
    Errors: OutOfRangeError for an id that is no row of the table; InvalidArgumentError for a
    combiner that is not known, or places that are not sorted."""
    combiner = "mean" if combiner is None else combiner
    if combiner not in _COMBINERS:
        raise errors.InvalidArgumentError(
            f"combiner is '{combiner}'; it must be one of {', '.join(_COMBINERS)}"
        )
    table = _table(params)
    segments = reshape(_rows_of(sp_ids), [-1])
    ids = index_tensor(sp_ids.values)
    if sp_weights is None and max_norm is None:
        # Rows are summed where they are; the gradient stays sparse.
        op = f"SparseSegment{_COMBINERS[combiner]}"
        return apply(op, (table, ids, segments), None, name=name)
    distinct, places = unique(ids)
    rows = gather(embedding_lookup(table, distinct, max_norm), places)
    if sp_weights is None:
        if combiner == "sum":
            return apply("SegmentSum", (rows, segments), None, name=name)
        weights = apply("OnesLike", (apply("Cast", (ids,), {"dtype": rows.dtype}),))
    else:
        weights = convert(sp_weights.values)
        if weights.dtype != rows.dtype:
            weights = apply("Cast", (weights,), {"dtype": rows.dtype})
    return _weighted(rows, weights, segments, combiner, name)


def _rows_of(sp: SparseTensor) -> Any:
    places = index_tensor(sp.indices)
    return apply("Slice", (places,), {"begin": [0, 0], "size": [-1, 1]})


def _weighted(rows: Any, weights: Any, segments: Any, combiner: str, name: str | None) -> Any:
    column = weights
    for _ in range(len(rows.shape) - 1):
        column = expand_dims(column, -1)
    total = apply("SegmentSum", (apply("Mul", (rows, column)), segments))
    if combiner == "sum":
        return total
    by = column if combiner == "mean" else apply("Square", (column,))
    divisor = apply("SegmentSum", (by, segments))
    if combiner == "sqrtn":
        divisor = apply("Sqrt", (divisor,))
    return apply("DivNoNan", (total, divisor), None, name=name)


def safe_embedding_lookup_sparse(
    embedding_weights: Any, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None = None,
    combiner: str = "mean", default_id: int | None = None, max_norm: float | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """embedding_lookup_sparse() that forgives (tf.nn.safe_embedding_lookup_sparse): negative ids
    and, with weights, those whose weight is not positive are left out, and a row without any id
    gives the row `default_id` of the table, or zeros. The result has one row per row of
    `sparse_ids`, whose dense_shape [rows, ...] must be given."""
    table = _table(embedding_weights)
    ids = index_tensor(sparse_ids.values)
    rows = reshape(_rows_of(sparse_ids), [-1])
    keep = apply("GreaterEqual", (ids, apply("ZerosLike", (ids,))))
    weights = None
    if sparse_weights is not None:
        weights = convert(sparse_weights.values)
        positive = apply("Greater", (weights, apply("ZerosLike", (weights,))))
        keep = apply("LogicalAnd", (keep, positive))
    ids, rows = boolean_mask(ids, keep), boolean_mask(rows, keep)
    if weights is not None:
        weights = boolean_mask(weights, keep)
    num = _number_of_rows(sparse_ids, rows.dtype)
    found = _combined(table, ids, rows, weights, combiner, max_norm, num)
    count = apply("UnsortedSegmentSum", (apply("OnesLike", (rows,)), rows, num))
    empty = apply("Equal", (count, apply("ZerosLike", (count,))))
    for _ in range(len(table.shape) - 1):
        empty = expand_dims(empty, -1)
    if default_id is None:
        instead = apply("ZerosLike", (found,))
    else:
        instead = embedding_lookup(table, [default_id], max_norm)
    return apply("Select", (empty, instead, found), None, name=name)


def _number_of_rows(sp: SparseTensor, dtype: Any) -> Any:
    extents = index_tensor(sp.dense_shape)
    first = apply("Slice", (extents,), {"begin": [0], "size": [1]})
    return first if first.dtype == dtype else apply("Cast", (first,), {"dtype": dtype})


def _combined(
    table: Any, ids: Any, rows: Any, weights: Any, combiner: str, max_norm: float | None, num: Any
) -> Any:
    """One combined row per row, `num` of them, zeros where there is none."""
    if combiner not in _COMBINERS:
        raise errors.InvalidArgumentError(
            f"combiner is '{combiner}'; it must be one of {', '.join(_COMBINERS)}"
        )
    if weights is None and max_norm is None:
        return apply(f"SparseSegment{_COMBINERS[combiner]}", (table, ids, rows, num))
    values = embedding_lookup(table, ids, max_norm)
    if weights is None:
        return apply(f"UnsortedSegment{_COMBINERS[combiner]}", (values, rows, num))
    if weights.dtype != values.dtype:
        weights = apply("Cast", (weights,), {"dtype": values.dtype})
    for _ in range(len(table.shape) - 1):
        weights = expand_dims(weights, -1)
    total = apply("UnsortedSegmentSum", (apply("Mul", (values, weights)), rows, num))
    if combiner == "sum":
        return total
    by = weights if combiner == "mean" else apply("Square", (weights,))
    divisor = apply("UnsortedSegmentSum", (by, rows, num))
    if combiner == "sqrtn":
        divisor = apply("Sqrt", (divisor,))
    return apply("DivNoNan", (total, divisor))
