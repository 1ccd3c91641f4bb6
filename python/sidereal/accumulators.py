"""Accumulators of gradients: means over the workers of one step, without those that came too late
(tf.compat.v1.ConditionalAccumulator). Methods return None when ops run at once, and operations in
sidereal.v1 graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from . import dtypes
from ._dispatch import convert
from ._resources import Resource, component_attrs, done
from .indexed_slices import IndexedSlices
from .ops.array import concat, shape
from .ops.array import slice as slice_
from .ops.basic import cast

__all__ = ["ConditionalAccumulator", "ConditionalAccumulatorBase", "SparseConditionalAccumulator"]


class SparseAccumulatorTakeGradient(NamedTuple):
    """What SparseConditionalAccumulator.take_grad() gives."""

    indices: Any
    values: Any
    shape: Any


def _step(value: Any) -> Any:
    """The number of a step as int64, whatever kind of integer counts them."""
    if isinstance(value, int):
        return convert(value, dtypes.int64)
    return cast(value, dtypes.int64)


class ConditionalAccumulatorBase(Resource):
    """What both kinds can do. `dtype` is float32 or float64, `shape` that of a gradient (None: of
    the first one of each step), reduction_type "MEAN" or "SUM"."""

    _sparse = False
    #: What `reduction_type` may be, and whether take_grad() waits.
    _reductions: ClassVar[Sequence[str]] = ("MEAN", "SUM")
    _waits: ClassVar[bool | None] = None

    def __init__(
        self, dtype: Any, shape: Sequence[int | None] | None = None,
        shared_name: str | None = None, name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        if reduction_type not in self._reductions:
            raise ValueError(f"reduction_type is {reduction_type!r}; it must be 'MEAN' or 'SUM'")
        self.dtype = dtypes.as_dtype(dtype)
        self.shape = None if shape is None else tuple(shape)
        attrs = {
            **component_attrs([self.dtype], [self.shape]),
            "reduction": reduction_type.lower(),
            "sparse": self._sparse,
        }
        super().__init__("Accumulator", attrs, name, shared_name)

    def num_accumulated(self, name: str | None = None) -> Any:
        """Gradients that were added since the last one was taken, int32 []."""
        return self._apply("AccumulatorSize", (), None, name)

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Any:
        """Makes it the current step: gradients of steps before are dropped from now on."""
        step = _step(new_global_step)
        return done(self._apply("AccumulatorSetGlobalStep", (step,), None, name))

    def restart(self, new_global_step: Any, contributors: Any, name: str | None = None) -> Any:
        """Forgets what was added, ends what waits with AbortedError, and begins at that step with
        so many gradients in each: take_grad() waits for no more."""
        inputs = (_step(new_global_step), _step(contributors))
        return done(self._apply("AccumulatorRestart", inputs, None, name))

    def leave(self, count: Any, name: str | None = None) -> Any:
        """Makes each step wait for so many gradients fewer; take_grad() is OutOfRangeError when
        none come any more."""
        return done(self._apply("AccumulatorLeave", (_step(count),), None, name))

    def _take(self, types: Sequence[Any], shapes: Any, num_required: Any, name: str | None) -> Any:
        attrs = {**component_attrs(types, shapes), "waits": self._waits}
        return self._apply("AccumulatorTake", (num_required,), attrs, name)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Of dense gradients (tf.compat.v1.ConditionalAccumulator)."""

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Any:
        """Adds a gradient computed at `local_step`, or drops it when that step is over.
        InvalidArgumentError when its shape is another."""
        inputs = (_step(local_step), convert(grad, self.dtype))
        return done(self._apply("AccumulatorApply", inputs, None, name))

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """Waits for `num_required` gradients of this step; the mean or sum of all there are. The
        next step begins. InvalidArgumentError unless `num_required` is positive."""
        return self._take([self.dtype], [self.shape], num_required, name)


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Of gradients of some rows; the mean of a row is over the gradients that had it
    (tf.compat.v1.SparseConditionalAccumulator)."""

    _sparse = True

    def apply_grad(
        self, grad_indices: Any, grad_values: Any, grad_shape: Any = None, local_step: Any = 0,
        name: str | None = None,
    ) -> Any:
        """Adds the rows `grad_values` [n, row...] at `grad_indices` [n]; see
        ConditionalAccumulator.apply_grad(). `grad_shape` is there for TensorFlow's sake."""
        inputs = (
            _step(local_step),
            cast(grad_indices, dtypes.int64),
            convert(grad_values, self.dtype),
        )
        return done(self._apply("AccumulatorApply", inputs, None, name))

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Any:
        """apply_grad() of an IndexedSlices."""
        return self.apply_grad(grad.indices, grad.values, None, local_step, name)

    def take_grad(
        self, num_required: Any, name: str | None = None
    ) -> SparseAccumulatorTakeGradient:
        """(indices, values, shape): rows ascending, each the mean or sum of its gradients; `shape`
        is that of the whole gradient, int64, -1 for the rows where they are not known."""
        row = None if self.shape is None else self.shape[1:]
        shapes = [(None,), None if row is None else (None, *row)]
        indices, values = self._take([dtypes.int64, self.dtype], shapes, num_required, name)
        return SparseAccumulatorTakeGradient(indices, values, self._whole_shape(values))

    def _whole_shape(self, values: Any) -> Any:
        """The shape of a gradient whose rows are like those of `values`, int64."""
        if self.shape is not None and None not in self.shape[1:]:
            rows = self.shape[0]
            return convert([-1 if rows is None else rows, *self.shape[1:]], dtypes.int64)
        rows = -1 if self.shape is None or self.shape[0] is None else self.shape[0]
        row = slice_(cast(shape(values), dtypes.int64), [1], [-1])
        return concat([convert([rows], dtypes.int64), row], 0)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """take_grad() as an IndexedSlices."""
        indices, values, _ = self.take_grad(num_required, name)
        return IndexedSlices(values, indices, dense_shape=self.shape)
