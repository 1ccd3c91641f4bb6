"""Reading and writing at indices, and segments. Names and arguments are TensorFlow's; the segment
functions are members of `sidereal.math`, and of `sidereal.sparse` where they take indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import errors
from .._dispatch import align, apply, convert
from ._arguments import apply_with, apply_with_int, index_tensor

__all__ = [
    "boolean_mask", "dynamic_partition", "dynamic_stitch", "gather", "gather_nd", "scatter_nd",
    "tensor_scatter_nd_add", "tensor_scatter_nd_max", "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub", "tensor_scatter_nd_update",
]  # fmt: skip


def gather(
    params: Any, indices: Any, validate_indices: Any = None, axis: int | None = None,
    batch_dims: int = 0, name: str | None = None,
) -> Any:  # fmt: skip
    """The values of `params` at `indices` (int32 or int64, of any shape) along `axis`, the first
    after `batch_dims` leading dimensions that both share (tf.gather). The result has the shape
    params.shape[:axis] + indices.shape[batch_dims:] + params.shape[axis + 1:].

    InvalidArgumentError names the index that is not in [0, extent). The gradient of a gather along
    dimension 0 is sidereal.IndexedSlices."""
    if axis is None:
        axis = batch_dims
    if axis == 0 and batch_dims == 0 and hasattr(params, "_gather"):
        # A variable in shards, which is never read whole for some of its rows.
        return params._gather(indices, name)
    attrs = {"axis": int(axis), "batch_dims": int(batch_dims)}
    return apply("Gather", (convert(params), index_tensor(indices)), attrs, name=name)


def gather_nd(params: Any, indices: Any, batch_dims: int = 0, name: str | None = None) -> Any:
    """The parts of `params` at indices[..., :], one number per dimension (tf.gather_nd); the first
    `batch_dims` dimensions of both are the same. InvalidArgumentError names an index outside."""
    attrs = {"batch_dims": int(batch_dims)}
    return apply("GatherNd", (convert(params), index_tensor(indices)), attrs, name=name)


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Any:
    """Zeros of `shape` with `updates` added at indices[..., :] (tf.scatter_nd)."""
    inputs = (index_tensor(indices), convert(updates))
    return apply_with("ScatterNd", inputs, {"shape": shape}, None, name)


def _tensor_scatter(op: str, tensor: Any, indices: Any, updates: Any, name: str | None) -> Any:
    x, new = align(tensor, updates)
    return apply(op, (x, index_tensor(indices), new), None, name=name)


def tensor_scatter_nd_add(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """`tensor` with `updates` added at indices[..., :] (tf.tensor_scatter_nd_add)."""
    return _tensor_scatter("TensorScatterAdd", tensor, indices, updates, name)


def tensor_scatter_nd_sub(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """`tensor` with `updates` subtracted at indices[..., :] (tf.tensor_scatter_nd_sub)."""
    return _tensor_scatter("TensorScatterSub", tensor, indices, updates, name)


def tensor_scatter_nd_update(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Any:
    """`tensor` with `updates` put at indices[..., :] (tf.tensor_scatter_nd_update); of several for
    one place the last stays, and all of them get its gradient."""
    return _tensor_scatter("TensorScatterUpdate", tensor, indices, updates, name)


def tensor_scatter_nd_max(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """The greater of `tensor` and the `updates` at indices[..., :] (tf.tensor_scatter_nd_max)."""
    return _tensor_scatter("TensorScatterMax", tensor, indices, updates, name)


def tensor_scatter_nd_min(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """The smaller of `tensor` and the `updates` at indices[..., :] (tf.tensor_scatter_nd_min)."""
    return _tensor_scatter("TensorScatterMin", tensor, indices, updates, name)


def boolean_mask(tensor: Any, mask: Any, axis: int = 0, name: str | None = None) -> Any:
    """The parts of a tensor where `mask` is true (tf.boolean_mask). The mask has the shape of the
    dimensions from `axis` on, as many as it has; they become one."""
    x, mask = convert(tensor), convert(mask, "bool")
    if mask.shape is None or x.shape is None or len(mask.shape) == 0:
        raise ValueError("boolean_mask() needs a tensor and a mask of known rank, no scalar")
    rank, n = len(x.shape), len(mask.shape)
    axis = axis + rank if axis < 0 else axis
    _check_mask(x.shape[axis : axis + n], mask.shape)
    if n > 1:
        extents = [-1 if e is None or e < 0 else e for e in x.shape]
        merged = _product(extents[axis : axis + n])
        others = [*extents[:axis], merged, *extents[axis + n :]]
        if others.count(-1) <= 1:
            x = apply("Reshape", (x,), {"shape": others, "allow_zero": True})
        else:
            x = _merge(x, axis, n)
        mask = apply("Reshape", (mask,), {"shape": [-1]})
    indices = apply("Squeeze", (apply("Where", (mask,)),), {"axes": [1]})
    return gather(x, indices, axis=axis, name=name)


def _check_mask(extents: Sequence[Any], mask: Sequence[Any]) -> None:
    fits = len(extents) == len(mask)
    for a, b in zip(extents, mask):
        known = a is not None and b is not None and a >= 0 and b >= 0
        fits = fits and (not known or a == b)
    if not fits:
        raise errors.InvalidArgumentError(
            f"boolean_mask(): a mask of shape {tuple(mask)} does not fit the dimensions "
            f"{tuple(extents)} of the tensor"
        )


def _product(extents: Sequence[int]) -> int:
    out = 1
    for extent in extents:
        out = -1 if extent < 0 or out < 0 else out * extent
    return out


def _merge(x: Any, axis: int, n: int) -> Any:
    """`x` with `n` dimensions from `axis` on made one, of extents that are not known."""
    extents = apply("Shape", (x,), {"out_type": "int64"})
    before = apply("Slice", (extents,), {"begin": [0], "size": [axis]})
    behind = apply("Slice", (extents,), {"begin": [axis + n], "size": [-1]})
    rest = apply("Concat", (before, convert([-1], "int64"), behind), {"axis": 0})
    return apply("Reshape", (x, rest))


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Any]:
    """The list of the parts of `data` by the number of their partition (tf.dynamic_partition).
    InvalidArgumentError when a number is not in [0, num_partitions)."""
    attrs = {"num_partitions": int(num_partitions)}
    made = apply("DynamicPartition", (convert(data), index_tensor(partitions)), attrs, name=name)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def dynamic_stitch(indices: Sequence[Any], data: Sequence[Any], name: str | None = None) -> Any:
    """The parts of `data` at their `indices`, one list each (tf.dynamic_stitch); of several for one
    index the last stays, and an index that is not there gives zeros."""
    if len(indices) != len(data) or not indices:
        raise errors.InvalidArgumentError(
            f"dynamic_stitch(): {len(indices)} indices for {len(data)} data"
        )
    return apply(
        "DynamicStitch", [*(index_tensor(i) for i in indices), *align(*data)], None, name=name
    )


# --- Segments.


def _segment(op: str, what: str, empty: str) -> Any:
    def function(data: Any, segment_ids: Any, name: str | None = None) -> Any:
        return apply(op, (convert(data), index_tensor(segment_ids)), None, name=name)

    function.__doc__ = (
        f"{what} of the rows of equal ids, which must be sorted and not negative; {empty} for an "
        f"id that is not there. The result has as many rows as the last id plus one.\n\n"
        "    Errors: InvalidArgumentError for ids that are not sorted."
    )
    function.__name__ = function.__qualname__ = op
    return function


segment_sum = _segment("SegmentSum", "Sums (tf.math.segment_sum)", "0")
segment_mean = _segment("SegmentMean", "Means (tf.math.segment_mean)", "0")
segment_prod = _segment("SegmentProd", "Products (tf.math.segment_prod)", "1")
segment_max = _segment("SegmentMax", "Greatest elements (tf.math.segment_max)", "0")
segment_min = _segment("SegmentMin", "Smallest elements (tf.math.segment_min)", "0")


def _unsorted(op: str, what: str, empty: str) -> Any:
    def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Any:
        inputs = (convert(data), index_tensor(segment_ids))
        return apply_with_int(op, inputs, "num_segments", num_segments, None, name)

    function.__doc__ = (
        f"{what} of the parts of `data` of equal ids, in any order; {empty} for an id that is not "
        "there. The shape of the ids is the beginning of that of the data; negative ids are left "
        "out.\n\n    Errors: InvalidArgumentError for an id that is not below num_segments."
    )
    function.__name__ = function.__qualname__ = op
    return function


unsorted_segment_sum = _unsorted("UnsortedSegmentSum", "Sums (tf.math.unsorted_segment_sum)", "0")
unsorted_segment_mean = _unsorted(
    "UnsortedSegmentMean", "Means (tf.math.unsorted_segment_mean)", "0"
)
unsorted_segment_sqrt_n = _unsorted(
    "UnsortedSegmentSqrtN",
    "Sums divided by the square root of their number (tf.math.unsorted_segment_sqrt_n)",
    "0",
)
unsorted_segment_prod = _unsorted(
    "UnsortedSegmentProd", "Products (tf.math.unsorted_segment_prod)", "1"
)
unsorted_segment_max = _unsorted(
    "UnsortedSegmentMax",
    "Greatest elements (tf.math.unsorted_segment_max)",
    "the lowest number of the dtype",
)
unsorted_segment_min = _unsorted(
    "UnsortedSegmentMin",
    "Smallest elements (tf.math.unsorted_segment_min)",
    "the highest number of the dtype",
)


def _sparse(op: str, what: str) -> Any:
    def function(
        data: Any, indices: Any, segment_ids: Any, num_segments: Any = None, name: str | None = None
    ) -> Any:
        inputs = [convert(data), index_tensor(indices), index_tensor(segment_ids)]
        if num_segments is None:
            return apply(op, inputs, None, name=name)
        return apply_with_int(op, inputs, "num_segments", num_segments, None, name)

    function.__doc__ = (
        f"{what} of the rows of `data` at `indices` of equal segment ids, which must be sorted; "
        "the rows are not copied first. The gradient is sidereal.IndexedSlices.\n\n"
        "    Errors: InvalidArgumentError for an index or id outside, and for ids not sorted."
    )
    function.__name__ = function.__qualname__ = op
    return function


sparse_segment_sum = _sparse("SparseSegmentSum", "Sums (tf.sparse.segment_sum)")
sparse_segment_mean = _sparse("SparseSegmentMean", "Means (tf.sparse.segment_mean)")
sparse_segment_sqrt_n = _sparse(
    "SparseSegmentSqrtN",
    "Sums divided by the square root of their number (tf.sparse.segment_sqrt_n)",
)
