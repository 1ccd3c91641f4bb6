"""What layers of preprocessing share: inputs of any kind, batches to adapt to, output modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import errors
from ..._dispatch import convert
from ..._native import Output, Tensor
from ...ops import array, math
from ...ops.debugging import checked
from ...ops.embedding import SparseTensor
from ...ops.indexing import unsorted_segment_sum
from ...ops.ragged import RaggedTensor
from ...ops.sparse import to_dense
from ...variable import Variable
from .._batches import is_arrays
from .._layer import Layer, shape_of, specs_of
from .._recording import trial
from ._shapes import extents_of, rank_of, reshaped

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")


def tensor_of(value: Any) -> Any:
    """Lists, numbers and text as a tensor; tensors, ragged and sparse ones as they are."""
    if isinstance(value, (RaggedTensor, SparseTensor, Tensor, Output)):
        return value
    return value.value() if isinstance(value, Variable) else convert(value)


def is_string(value: Any) -> bool:
    """Whether the elements are text."""
    inner = value.values if isinstance(value, SparseTensor) else value
    return bool(inner.dtype.name == "string")


def each_element(function: Any, value: Any) -> Any:
    """`function` of a tensor, or of the elements that a ragged or sparse one has."""
    if isinstance(value, RaggedTensor):
        return RaggedTensor(each_element(function, value.values), value.row_splits)
    if isinstance(value, SparseTensor):
        return SparseTensor(value.indices, function(value.values), value.dense_shape)
    return function(value)


class Preprocessing(Layer):
    """Base of layers whose inputs are data as they come: lists and text too."""

    #: A symbolic call looks at shapes only, so that the layer may be adapted later.
    _is_planned = False
    #: The dtype of inputs when only their shape is said; None: that of the layer.
    _dtype_of_inputs: Any = None

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(self._prepared(inputs), *args, **kwargs)

    def _prepared(self, inputs: Any) -> Any:
        return tensor_of(inputs)

    def _record(self, args: Any, kwargs: Any) -> Any:
        self._is_planned = True
        try:
            return super()._record(args, kwargs)
        finally:
            self._is_planned = False

    def compute_output_shape(self, input_shape: Any) -> Any:
        dtype = self._dtype if self._dtype_of_inputs is None else self._dtype_of_inputs
        self._is_planned = True
        try:
            return shape_of(trial(self, (specs_of(input_shape, dtype),), {}))
        finally:
            self._is_planned = False

    def _check_modes(self, output_mode: str, sparse: bool, allowed: Sequence[str]) -> str:
        """The output mode; ValueError for one that is not there, and for sparse outputs."""
        if output_mode not in allowed:
            raise ValueError(
                f"layer '{self.name}': output_mode is {output_mode!r}; it must be one of "
                f"{', '.join(allowed)}"
            )
        if sparse:
            raise ValueError(f"layer '{self.name}': sparse=True is not there; outputs are dense")
        return output_mode


def batches_of(layer: Layer, data: Any, steps: int | None = None) -> Iterator[Any]:
    """The batches that adapt() of a layer is given, as arrays, or as RaggedTensors of them: `data`
    itself, or what it gives when it is iterated, `steps` times at most."""
    whole = isinstance(data, (RaggedTensor, SparseTensor)) or is_arrays(data)
    if not whole and not isinstance(data, Iterable):
        raise TypeError(
            f"adapt() of layer '{layer.name}' takes arrays, tensors, or what gives batches of "
            f"them, and not {data!r}"
        )
    for number, batch in enumerate([data] if whole else data):
        if not whole and number == steps:
            return
        if isinstance(batch, Mapping) or (
            isinstance(batch, tuple) and not isinstance(batch, (RaggedTensor, SparseTensor))
            and any(not np.isscalar(each) for each in batch)
        ):  # fmt: skip
            raise TypeError(
                f"adapt() of layer '{layer.name}' takes batches of its inputs alone, arrays or "
                f"tensors, not a {type(batch).__name__}; pick the feature that is meant"
            )
        made = tensor_of(batch.to_numpy() if hasattr(batch, "to_numpy") else batch)
        if isinstance(made, Output):
            raise errors.FailedPreconditionError(
                f"adapt() of layer '{layer.name}' needs values; call it outside of functions"
            )
        yield to_dense(made) if isinstance(made, SparseTensor) else made


class Adaptable(Preprocessing):
    """Base of layers that adapt() makes ready, by what they see of the data."""

    def adapt(self, data: Any, steps: int | None = None) -> None:
        """Makes the layer ready for an array, or for the batches that `data` gives when it is
        iterated, `steps` of them at most. What an earlier call found is forgotten."""
        self._check_adaptable()
        self.reset_state()
        for batch in batches_of(self, data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Takes one batch into account; finalize_state() makes the layer ready for what was
        seen."""
        self._check_adaptable()
        for batch in batches_of(self, data):
            self._see(batch)

    def _check_adaptable(self) -> None:
        """ValueError for a layer that was given what adapt() finds."""

    def reset_state(self) -> None:
        """Forgets what update_state() has seen."""
        raise NotImplementedError

    def _see(self, batch: Any) -> None:
        raise NotImplementedError

    def finalize_state(self) -> None:
        """Makes the layer ready for what was seen."""
        raise NotImplementedError


# --- Numbers of categories as what models take.


def encoded(
    where: str, ids: Any, mode: str, depth: int, dtype: Any, weights: Any = None
) -> Any:  # fmt: skip
    """Category numbers in an output mode; those outside of [0, depth) count for nothing.

    int: as they are. one_hot: [...] -> [..., depth], a last dimension of extent 1 replaced.
    multi_hot: [..., n] -> [..., depth], 1 for each number that is there. count and tf_idf: the sum
    of the `weights` [..., n] (ones) for each number. Rows of ragged and sparse ids are examples.
    """
    if mode == "int":
        return ids
    if mode == "one_hot":
        if isinstance(ids, (RaggedTensor, SparseTensor)):
            raise ValueError(f"layer '{where}': one_hot is of tensors, not of ragged or sparse ids")
        if rank_of(where, ids) > 0 and ids.shape[-1] == 1:
            ids = array.squeeze(ids, -1)
        return array.one_hot(ids, depth, dtype=dtype)
    if isinstance(ids, (RaggedTensor, SparseTensor)):
        flat, rows, count = _rows_of(where, ids)
        if weights is not None:
            weights = weights.values
        made = _sums(flat, rows, count, depth, dtype, weights)
        made = array.reshape(made, [-1, depth])
        return _ones_where_any(made, dtype) if mode == "multi_hot" else made
    heads = extents_of(ids)[:-1] if rank_of(where, ids) > 0 else []
    width = extents_of(ids)[-1] if len(ids.shape) > 0 else 1
    rows = array.reshape(array.range(_product(heads)), [-1, 1])
    rows = array.reshape(array.tile(rows, array.stack([1, width])), [-1])
    flat = array.reshape(ids, [-1])
    if weights is not None:
        weights = array.reshape(weights, [-1])
    made = _sums(flat, rows, _product(heads), depth, dtype, weights)
    made = reshaped(made, [*heads, depth])
    if made.shape is None or made.shape[-1] != depth:
        known = [extent if isinstance(extent, int) else None for extent in heads]
        made = array.ensure_shape(made, [*known, depth])
    return _ones_where_any(made, dtype) if mode == "multi_hot" else made


def _product(extents: Sequence[Any]) -> Any:
    total: Any = 1
    for extent in extents:
        both_known = isinstance(total, int) and isinstance(extent, int)
        total = total * extent if both_known else math.multiply(extent, total)
    return total


def _rows_of(where: str, ids: Any) -> tuple[Any, Any, Any]:
    """The elements, the row each is in, and how many rows there are."""
    if isinstance(ids, SparseTensor):
        places = convert(ids.indices)
        return ids.values, places[:, 0], convert(ids.dense_shape)[0]
    if ids.ragged_rank != 1:
        raise ValueError(f"layer '{where}': rows of rows cannot be encoded; use output_mode='int'")
    return ids.values, ids.value_rowids(), ids.nrows()


def _sums(flat: Any, rows: Any, count: Any, depth: int, dtype: Any, weights: Any) -> Any:
    """For each row and each number below depth the sum of weights, [count * depth]."""
    flat, rows = math.cast(flat, "int64"), math.cast(rows, "int64")
    known = math.logical_and(math.greater_equal(flat, 0), math.less(flat, depth))
    nowhere = math.subtract(array.zeros_like(flat), 1)
    places = math.where(known, math.add(math.multiply(rows, depth), flat), nowhere)
    ones = array.ones_like(flat, dtype=dtype) if weights is None else math.cast(weights, dtype)
    size = count * depth if isinstance(count, int) else math.multiply(count, depth)
    return unsorted_segment_sum(ones, places, size)


def _ones_where_any(counts: Any, dtype: Any) -> Any:
    return math.cast(math.greater(counts, 0), dtype)


def all_below(where: str, ids: Any, bound: int) -> Any:
    """Numbers; InvalidArgumentError when the step runs for one outside of [0, bound)."""
    return each_element(lambda flat: _all_below(where, flat, bound), ids)


def _all_below(where: str, flat: Any, bound: int) -> Any:
    fits = math.logical_and(math.greater_equal(flat, 0), math.less(flat, bound))
    message = (
        f"layer '{where}': numbers must be from 0 to {bound - 1}, below num_tokens={bound}; they "
        "are"
    )
    return checked(flat, math.reduce_all(fits), message, flat)
