"""Rows at indices, and tensors of few elements: sidereal.sparse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._dispatch import apply, convert
from ._arguments import index_tensor
from .array import fill, reshape, shape, stack, zeros_like
from .array import range as range_of
from .embedding import SparseTensor
from .indexing import (
    gather,
    gather_nd,
    tensor_scatter_nd_update,
    unsorted_segment_sum,
)
from .indexing import (
    sparse_segment_mean as segment_mean,
)
from .indexing import (
    sparse_segment_sqrt_n as segment_sqrt_n,
)
from .indexing import (
    sparse_segment_sum as segment_sum,
)
from .math import add, cast, floordiv, floormod, not_equal, reduce_max, subtract

__all__ = [
    "SparseTensor", "cross_hashed", "from_dense", "segment_mean", "segment_sqrt_n", "segment_sum",
    "sparse_dense_matmul", "to_dense",
]  # fmt: skip


def to_dense(sp_input: SparseTensor, default_value: Any = None, name: str | None = None) -> Any:
    """The tensor of dense_shape with the elements of `sp_input`, and `default_value` (zero, or the
    empty string) elsewhere (tf.sparse.to_dense). Gradients flow to the values.
    InvalidArgumentError for an index outside of the shape; of equal indices the last counts."""
    values = convert(sp_input.values)
    if default_value is None:
        default_value = "" if values.dtype.name == "string" else 0
    elsewhere = convert(default_value, values.dtype)
    full = fill(index_tensor(sp_input.dense_shape), elsewhere)
    made = tensor_scatter_nd_update(full, index_tensor(sp_input.indices), values)
    return made if name is None else apply("Identity", (made,), None, name=name)


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of a tensor that are not zero, or not "" (tf.sparse.from_dense)."""
    values = convert(tensor)
    return without(values, "" if values.dtype.name == "string" else 0, name)


def without(values: Any, ignored: Any, name: str | None = None) -> SparseTensor:
    """The elements of a tensor that are not `ignored`."""
    found = apply("Where", (not_equal(values, convert(ignored, values.dtype)),), None, name=name)
    return SparseTensor(found, gather_nd(values, found), shape(values, "int64"))


# --- Crosses.

#: TensorFlow's key of crosses that are hashed.
CROSS_KEY = 0xDECAFCAFFE
#: The multiplier of FarmHash.
_MULTIPLIER = 0xC6A4A7935BD1E995


def word(value: int) -> Any:
    """A number of 64 bits."""
    return convert(np.uint64(value))


def fingerprints(texts: Any) -> Any:
    """The 64 bits of FarmHash of each text, of which ops give the rest of a division: the lower 62
    bits, and from the rest by 5 the other two."""
    low = apply("StringToHashBucketFast", (texts,), {"num_buckets": 1 << 62})
    rest = apply("StringToHashBucketFast", (texts,), {"num_buckets": 5})
    # 2**62 is 4, or -1, modulo 5.
    high = floormod(subtract(low, rest), 5)
    upper = apply("LeftShift", (cast(high, "uint64"), word(62)))
    return apply("BitwiseOr", (upper, cast(low, "uint64")))


def _mixed(x: Any) -> Any:
    return apply("BitwiseXor", (x, apply("RightShift", (x, word(47)))))


def joined_fingerprints(first: Any, second: Any) -> Any:
    """The fingerprint of two (FarmHash's FingerprintCat64)."""
    by = word(_MULTIPLIER)
    mixed = apply("Mul", (_mixed(apply("Mul", (second, by))), by))
    made = apply("Mul", (apply("BitwiseXor", (apply("BitwiseXor", (first, by)), mixed)), by))
    return _mixed(apply("Mul", (_mixed(made), by)))


def _words(values: Any) -> Any:
    return fingerprints(values) if values.dtype.name == "string" else cast(values, "uint64")


def cross_hashed(
    inputs: Sequence[Any], num_buckets: int = 0, hash_key: int | None = None,
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """The crosses of the features in each row (tf.sparse.cross_hashed): for each way to take one
    value of every input, a number below `num_buckets` (0: below 2**63 - 1), the same as
    TensorFlow's. `inputs` [rows, n] of strings or integers; of SparseTensors what is there, of
    tensors each element. Sparse ones are crossed before the others, the last one runs fastest."""
    ordered = [each for each in inputs if isinstance(each, SparseTensor)]
    ordered += [each for each in inputs if not isinstance(each, SparseTensor)]
    if not ordered:
        raise ValueError("cross_hashed() of no inputs; give at least one")
    key = CROSS_KEY if hash_key is None else int(hash_key) & (1 << 64) - 1
    count = _rows_in(ordered[0])
    rows, words = _row_of_each(ordered[0])
    found = joined_fingerprints(word(key), words)
    for each in ordered[1:]:
        other_rows, other = _row_of_each(each)
        there = _counts(other_rows, count)
        repeats = gather(there, rows)
        taken = apply("RepeatIndices", (repeats,))
        # Each is joined with all of the other input in its row, one after another.
        place = subtract(_numbers(taken), gather(_before(repeats), taken))
        at = add(gather(gather(_before(there), rows), taken), place)
        found = joined_fingerprints(gather(found, taken), gather(other, at))
        rows = gather(rows, taken)
    bound = num_buckets if num_buckets > 0 else (1 << 63) - 1
    ids = cast(floormod(found, word(bound)), "int64")
    crosses = _counts(rows, count)
    columns = subtract(_numbers(rows), gather(_before(crosses), rows))
    longest = reduce_max(apply("Concat", (crosses, convert([0], "int64")), {"axis": 0}))
    return SparseTensor(stack([rows, columns], 1, name=name), ids, stack([count, longest], 0))


def _rows_in(values: Any) -> Any:
    if isinstance(values, SparseTensor):
        return cast(index_tensor(values.dense_shape), "int64")[0]
    return shape(convert(values), "int64")[0]


def _row_of_each(values: Any) -> tuple[Any, Any]:
    """For each value of an input its row, and its word."""
    if isinstance(values, SparseTensor):
        rows = cast(index_tensor(values.indices), "int64")[:, 0]
        return rows, _words(convert(values.values))
    dense = convert(values)
    flat = reshape(dense, [-1])
    width = shape(dense, "int64")[1]
    return floordiv(_numbers(flat), width), _words(flat)


def _numbers(like: Any) -> Any:
    """0, 1, 2, ... one for each element of a vector."""
    return range_of(convert(0, "int64"), shape(like, "int64")[0], convert(1, "int64"))


def _counts(rows: Any, count: Any) -> Any:
    """How many values each row has."""
    ones = add(zeros_like(rows), 1)
    return apply("UnsortedSegmentSum", (ones, rows, reshape(count, [1])))


def _before(counts: Any) -> Any:
    """For each row how many values there are before it."""
    return apply("Cumsum", (counts,), {"axis": 0, "exclusive": True})


def sparse_dense_matmul(sp_a: SparseTensor, b: Any, name: str | None = None) -> Any:
    """The product of a SparseTensor of two dimensions and a matrix
    (tf.sparse.sparse_dense_matmul)."""
    b = convert(b)
    places = convert(sp_a.indices)
    products = convert(sp_a.values, b.dtype)[:, None] * gather(b, places[:, 1])
    return unsorted_segment_sum(products, places[:, 0], convert(sp_a.dense_shape)[0], name=name)
