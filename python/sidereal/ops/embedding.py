"""Embedding lookups on tensors. Names and arguments are TensorFlow's. Tables on parameter servers
are read by the layers of a Model; these functions take tensors or variables, also several that are
the parts of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import errors
from .._dispatch import apply, binary, convert
from ._arguments import index_tensor
from .array import concat, expand_dims, reshape, shape
from .array import range as range_
from .indexing import boolean_mask, dynamic_partition, dynamic_stitch, gather
from .math import floordiv, floormod
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


def _tables(params: Any) -> list[Any]:
    """The parts of a table; one, if it has none."""
    if params is None:
        raise ValueError("params must be specified")
    given = params if isinstance(params, (list, tuple)) else [params]
    if not given:
        raise ValueError("Need at least one param")
    parts = [getattr(param, "_as_tables", lambda p=param: [p])() for param in given]
    return [
        # What gives rows without the rest of it is asked for these.
        part if hasattr(part, "_gather") else convert(part)
        for of_one in parts
        for part in of_one
    ]


def _layout(params: Any, strategy: str) -> str:
    """The strategy a table was cut by where it says so itself (a ShardedVariable), else the one
    that is asked for."""
    given = params if isinstance(params, (list, tuple)) else [params]
    return next((getattr(param, "_layout", strategy) for param in given), strategy)


def embedding_lookup(
    params: Any, ids: Any, max_norm: float | None = None, name: str | None = None
) -> Any:
    """The rows of the table `params` at `ids` of any shape (tf.nn.embedding_lookup), those whose
    length is above `max_norm` shortened to it. InvalidArgumentError names an id that is no row.

    A list of tables, or a variable that is cut into parts, is one table of all their rows, one part
    behind the other ('div'): as even as can be, the first parts a row longer, else ValueError. Of
    each part its rows alone are read, where it is, and gradients are of those."""
    return lookup(params, ids, "div", max_norm, name)


def lookup(
    params: Any, ids: Any, strategy: str, max_norm: float | None = None, name: str | None = None
) -> Any:
    """embedding_lookup() of parts by a strategy: 'div', or 'mod': row i is row i // n of part i % n
    of n."""
    strategy = _layout(params, strategy)
    tables, places = _tables(params), index_tensor(ids)
    if len(tables) == 1:
        rows = gather(tables[0], places, axis=0, name=name)
    else:
        rows = _rows_of_parts(tables, places, strategy, name)
    return rows if max_norm is None else _clipped(rows, places, max_norm)


def _rows_of_parts(tables: Sequence[Any], ids: Any, strategy: str, name: str | None) -> Any:
    """Each part is asked for what is its own, and the answers are put where their ids are."""
    flat = ids if ids.shape is not None and len(ids.shape) == 1 else reshape(ids, [-1])
    sizes = [table.shape[0] if table.shape else -1 for table in tables]
    part, wanted = routed(sizes, flat, strategy)
    positions = dynamic_partition(range_(apply("Size", (flat,))), part, len(tables))
    found = [gather(table, rows) for table, rows in zip(tables, wanted)]
    stitched = dynamic_stitch(positions, found, name=name if flat is ids else None)
    if flat is ids:
        return stitched
    row_shape = found[0].shape[1:]
    extents = [*(ids.shape if ids.shape is not None else [-1, -1]), *row_shape]
    if sum(extent < 0 for extent in extents) <= 1 and 0 not in extents:
        return reshape(stitched, extents, name=name)
    target = concat([shape(ids), shape(found[0])[1:]], 0)
    return reshape(stitched, target, name=name)


def is_div(sizes: Sequence[int]) -> bool:
    """Whether parts of so many rows are as 'div' cuts: as even as can be, the first ones maybe a
    row longer."""
    short, longer = divmod(sum(sizes), len(sizes))
    return list(sizes) == [short + (i < longer) for i in range(len(sizes))]


def routed(sizes: Sequence[int], ids: Any, strategy: str) -> tuple[Any, list[Any]]:
    """For each id the number of the part that has its row; and for each part, of which `sizes` says
    how many rows it has (-1: not known), the numbers there of the rows that are wanted of it."""
    part, row = _located(sizes, ids, strategy)
    return part, dynamic_partition(row, part, len(sizes))


def _located(sizes: Sequence[int], ids: Any, strategy: str) -> tuple[Any, Any]:
    """For each id the number of the part that has its row, and the number of the row there. No part
    has an id that is no row, or the part that is said has no such row."""
    n = len(sizes)
    if strategy == "mod":
        return floormod(ids, n), floordiv(ids, n)
    if strategy != "div":
        raise ValueError(
            f"Unrecognized partition strategy: {strategy}. Must be one of either `mod` or `div`."
        )
    if not is_div(sizes):
        raise ValueError(
            f"parts of {list(sizes)} rows (-1: not known) are no table that was cut by 'div': all "
            "have equally many, the first ones maybe one more"
        )
    short, longer = divmod(sum(sizes), n)
    if short == 0:
        return ids, apply("ZerosLike", (ids,))
    # The first parts have short + 1 rows each; what is behind them counts from their end.
    beyond = binary("Sub", ids, longer)
    part = binary("Maximum", floordiv(ids, short + 1), floordiv(beyond, short))
    is_longer = apply("Less", (part, convert(longer, part.dtype)))
    row = apply("Select", (is_longer, floormod(ids, short + 1), floormod(beyond, short)))
    return part, row


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
    Tables of several parts are as in embedding_lookup().
    Errors: InvalidArgumentError for an id that is no row of the table, a combiner that is not
    known, or places that are not sorted."""
    return lookup_sparse(params, sp_ids, sp_weights, "div", combiner, max_norm, name)


def lookup_sparse(
    params: Any, sp_ids: SparseTensor, sp_weights: SparseTensor | None, strategy: str,
    combiner: str | None, max_norm: float | None, name: str | None,
) -> Any:  # fmt: skip
    """embedding_lookup_sparse() of parts by a strategy; see lookup()."""
    combiner = "mean" if combiner is None else combiner
    _check_combiner(combiner)
    segments = reshape(_rows_of(_sparse("sp_ids", sp_ids)), [-1])
    by_rows = sp_weights is None and max_norm is None
    ids = index_tensor(sp_ids.values)
    strategy = _layout(params, strategy)
    table, ids = _one_table(_tables(params), ids, strategy, max_norm, by_rows)
    if by_rows:
        # Rows are summed where they are; the gradient stays sparse.
        op = f"SparseSegment{_COMBINERS[combiner]}"
        return apply(op, (table, ids, segments), None, name=name)
    rows = gather(table, ids)
    if sp_weights is None:
        if combiner == "sum":
            return apply("SegmentSum", (rows, segments), None, name=name)
        weights = apply("OnesLike", (apply("Cast", (ids,), {"dtype": rows.dtype}),))
    else:
        weights = convert(_sparse("sp_weights", sp_weights).values)
        if weights.dtype != rows.dtype:
            weights = apply("Cast", (weights,), {"dtype": rows.dtype})
    return _weighted(rows, weights, segments, combiner, name)


def _check_combiner(combiner: str) -> None:
    if combiner not in _COMBINERS:
        raise errors.InvalidArgumentError(
            f"combiner is '{combiner}'; it must be one of {', '.join(_COMBINERS)}"
        )


def _sparse(what: str, value: Any) -> SparseTensor:
    if not isinstance(value, SparseTensor):
        raise TypeError(f"{what} must be a SparseTensor, but got {type(value).__name__}")
    return value


def _one_table(
    tables: list[Any], ids: Any, strategy: str, max_norm: float | None, by_rows: bool
) -> tuple[Any, Any]:
    """A table, and the numbers of the rows there that the ids mean: the rows that are needed, each
    once, shortened to `max_norm`. Or the table itself, when it is one that is read `by_rows`."""
    if len(tables) == 1 and by_rows:
        return tables[0], ids
    distinct, places = unique(ids)
    return lookup(tables, distinct, strategy, max_norm), places


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
    and, unless the combiner is "sum", those whose weight is not positive are left out, and a row
    without any id gives the row `default_id` of the table, or zeros. The result is [..., row of the
    table] for a dense_shape [..., ids], which must be given."""
    return safe_lookup_sparse(
        embedding_weights, sparse_ids, sparse_weights, "div", combiner, default_id, max_norm, name
    )


def safe_lookup_sparse(
    embedding_weights: Any, sparse_ids: SparseTensor, sparse_weights: SparseTensor | None,
    strategy: str, combiner: str | None, default_id: int | None, max_norm: float | None,
    name: str | None,
) -> Any:  # fmt: skip
    """safe_embedding_lookup_sparse() of parts by a strategy; see lookup()."""
    combiner = "mean" if combiner is None else combiner
    _check_combiner(combiner)
    strategy = _layout(embedding_weights, strategy)
    tables = _tables(embedding_weights)
    _sparse("sparse_ids", sparse_ids)
    ids = index_tensor(sparse_ids.values)
    rows, num, extents = _places_of(sparse_ids)
    keep = apply("GreaterEqual", (ids, apply("ZerosLike", (ids,))))
    weights = None
    if sparse_weights is not None:
        weights = convert(_sparse("sparse_weights", sparse_weights).values)
        if combiner != "sum":
            positive = apply("Greater", (weights, apply("ZerosLike", (weights,))))
            keep = apply("LogicalAnd", (keep, positive))
    ids, rows = boolean_mask(ids, keep), boolean_mask(rows, keep)
    if weights is not None:
        weights = boolean_mask(weights, keep)
    by_rows = weights is None and max_norm is None
    table, ids = _one_table(tables, ids, strategy, max_norm, by_rows)
    found = _combined(table, ids, rows, weights, combiner, num)
    count = apply("UnsortedSegmentSum", (apply("OnesLike", (rows,)), rows, num))
    empty = apply("Equal", (count, apply("ZerosLike", (count,))))
    for _ in range(len(found.shape) - 1):
        empty = expand_dims(empty, -1)
    if default_id is None:
        instead = apply("ZerosLike", (found,))
    else:
        instead = lookup(tables, [default_id], strategy, max_norm)
    if extents is None:
        return apply("Select", (empty, instead, found), None, name=name)
    made = apply("Select", (empty, instead, found))
    target = concat([extents, apply("Slice", (shape(made, extents.dtype),), _from(1))], 0)
    return reshape(made, target, name=name)


def _from(begin: int, size: int = -1) -> dict[str, list[int]]:
    """Of a vector the elements from number `begin` on."""
    return {"begin": [begin], "size": [size]}


def _places_of(sp: SparseTensor) -> tuple[Any, Any, Any]:
    """The row of each id, all dimensions but the last counted as one; the number of rows [1]; and
    the extents of those dimensions when they are several."""
    places = index_tensor(sp.indices)
    extents = index_tensor(sp.dense_shape)
    if extents.dtype != places.dtype:
        extents = apply("Cast", (extents,), {"dtype": places.dtype})
    rank = places.shape[1] if places.shape is not None and len(places.shape) == 2 else 2
    rows = reshape(_rows_of(sp), [-1])
    if rank <= 2:
        return rows, apply("Slice", (extents,), _from(0, 1)), None
    for i in range(1, rank - 1):
        extent = apply("Slice", (extents,), _from(i, 1))
        column = apply("Slice", (places,), {"begin": [0, i], "size": [-1, 1]})
        rows = apply("Add", (apply("Mul", (rows, extent)), reshape(column, [-1])))
    leading = apply("Slice", (extents,), _from(0, rank - 1))
    return rows, apply("ReduceProd", (leading,), {"axes": [0], "keep_dims": True}), leading


def _combined(table: Any, ids: Any, rows: Any, weights: Any, combiner: str, num: Any) -> Any:
    """One combined row per row, `num` of them, zeros where there is none."""
    if weights is None:
        return apply(f"SparseSegment{_COMBINERS[combiner]}", (table, ids, rows, num))
    values = gather(table, ids)
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
