"""IndexedSlices: a gradient of a few rows."""

from __future__ import annotations

from typing import Any

from ._dispatch import apply, convert
from .dtypes import DType


class IndexedSlices:
    """The rows `indices` (dimension 0) of a tensor of shape `dense_shape`; the others are zero, and
    the rows of equal indices are summed (tf.IndexedSlices). `values` has the shape
    [len(indices)] + dense_shape[1:].

    Gradients of lookups are of this kind and stay so until an optimizer updates those rows only; an
    op that takes a tensor takes the dense form, which convert_to_tensor() makes.
    """

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None):
        self.values = convert(values)
        self.indices = convert(indices)
        self.dense_shape = None if dense_shape is None else tuple(dense_shape)

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.dense_shape

    def _as_tensor(self) -> Any:
        if self.dense_shape is None:
            raise ValueError("IndexedSlices without a dense_shape cannot become a tensor")
        attrs = {"shape": list(self.dense_shape)}
        like = apply("Fill", (convert(0, self.dtype),), attrs)
        return apply("GatherGrad", (self.values, self.indices, like))

    def numpy(self) -> Any:
        """The dense form as an array."""
        return self._as_tensor().numpy()

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(values={self.values!r}, indices={self.indices!r}, "
            f"dense_shape={self.dense_shape})"
        )


def from_rows(rows: tuple[Any, Any, Any]) -> IndexedSlices:
    """From (values, indices, the value it is the gradient of) of any shape of indices."""
    values, indices, of = rows
    shape = tuple(of.shape)
    values = apply("Reshape", (values,), {"shape": [indices.size, *shape[1:]]})
    indices = apply("Reshape", (indices,), {"shape": [indices.size]})
    return IndexedSlices(values, indices, shape)
