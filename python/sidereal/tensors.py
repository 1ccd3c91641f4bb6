"""Making tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import errors
from ._dispatch import ENGINE, state, to_tensor
from ._native import Output, Tensor


def constant(value: Any, dtype: Any = None, shape: Sequence[int] | None = None) -> Any:
    """A tensor of a number, nested lists of numbers, or an array (tf.constant); data are copied.

    Numbers are float32, int32 or bool unless `dtype` says otherwise; arrays keep their dtype.
    `shape` lays the elements out anew; a single element is repeated to fill it.
    """
    if isinstance(value, Output):
        raise TypeError("constant() takes values, not values of a graph")
    made = to_tensor(value, dtype)
    if shape is not None and made.shape != tuple(shape):
        array = made.numpy()
        array = np.full(shape, array) if made.size == 1 else array.reshape(shape)
        made = to_tensor(array, made.dtype)
    return made if state.graph is None else state.graph.constant(made)


def from_dlpack(array: Any) -> Tensor:
    """A tensor over the memory of an array of another library (NumPy, PyTorch, JAX), which has
    `__dlpack__`. Nothing is copied: a change of the array's elements shows in the tensor, so do not
    change them. Errors: InvalidArgumentError for memory of a device, gaps between elements, dtypes
    sidereal has not; it says what to do."""
    if isinstance(array, Tensor):
        return array
    if isinstance(array, Output):
        raise errors.InvalidArgumentError("a value of a graph has no memory yet")
    return ENGINE.from_dlpack(array)


def is_tensor(value: Any) -> bool:
    """True for tensors, values of graphs and variables."""
    return isinstance(value, (Tensor, Output)) or hasattr(value, "_as_tensor")


__all__ = ["constant", "from_dlpack", "is_tensor"]
