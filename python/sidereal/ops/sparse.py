"""Rows at indices, and tensors of few elements: sidereal.sparse."""

from __future__ import annotations

from typing import Any

from .._dispatch import apply, convert
from ._arguments import index_tensor
from .array import fill
from .embedding import SparseTensor
from .indexing import (
    sparse_segment_mean as segment_mean,
)
from .indexing import (
    sparse_segment_sqrt_n as segment_sqrt_n,
)
from .indexing import (
    sparse_segment_sum as segment_sum,
)
from .indexing import (
    tensor_scatter_nd_update,
)

__all__ = ["SparseTensor", "segment_mean", "segment_sqrt_n", "segment_sum", "to_dense"]


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
