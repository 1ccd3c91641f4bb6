"""What each worker of a coordinator has of its own, and what functions that it runs give."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from .. import _native, errors, nest
from .._datasets import Dataset
from .._dispatch import ENGINE, apply, state, to_tensor
from .._iterators import GraphIterator, TracedIterator, position_bytes
from .._native import Output, Tensor
from .._tensor import install_shared
from ..function import TensorSpec
from ._plan import Plan

if TYPE_CHECKING:
    from .coordinator import ClusterCoordinator

MS = 1000


class Tracing(threading.local):
    """What a thread traces for workers. `index`: gives the number of the worker; `asked`: whether
    it did."""

    index: Callable[[], Output] | None = None
    asked: bool = False


tracing = Tracing()


def get_current_worker_index() -> Any:
    """The number of the worker that runs the function that is being traced, as a tensor of int64.
    RuntimeError elsewhere."""
    if tracing.index is None:
        raise RuntimeError(
            "get_current_worker_index() is known in functions that are scheduled, and in those of "
            "ClusterCoordinator.create_per_worker_dataset()"
        )
    tracing.asked = True
    return tracing.index()


class RemoteValue:
    """What a scheduled function gives, once it has run (tf.distribute.experimental.coordinator)."""

    def __init__(self, native: _native.RemoteValue, plan: Plan) -> None:
        self._native = native
        self._plan = plan

    @property
    def is_ready(self) -> bool:
        """Whether the function has ended, with a value or an error."""
        return self._native.is_ready

    def get(self, timeout: float | None = None) -> Any:
        """Waits for the value: tensors in the structure of the function's result. `timeout` in
        seconds; None: as long as it takes. Errors: the function's own; CancelledError when it was
        cancelled, as another one had failed; DeadlineExceededError."""
        return self._plan.pack(self._native.wait(ENGINE, milliseconds(timeout)))

    def fetch(self, timeout: float | None = None) -> Any:
        """As get(), with NumPy arrays."""
        # An array without extents becomes a number of its dtype.
        return nest.map_structure(
            lambda leaf: leaf.numpy()[()] if isinstance(leaf, Tensor) else leaf, self.get(timeout)
        )

    def __repr__(self) -> str:
        return f"<RemoteValue {'ready' if self.is_ready else 'not ready'}>"


class PerWorkerTensor:
    """A value that each worker has one of, in a variable of its own."""

    def __init__(self, handle: Output, value: Output) -> None:
        self._handle = handle
        self.dtype = value.dtype
        self.shape = value.shape

    def _as_tensor(self) -> Any:
        if state.graph is None:
            raise errors.FailedPreconditionError(
                "a value of workers is none of the coordinator: give it to a function that is "
                "scheduled"
            )
        attrs = {"dtype": self.dtype, "shape": self.shape}
        return apply("VariableRead", (state.graph.enter(self._handle),), attrs)


install_shared(PerWorkerTensor)


class PerWorkerValues:
    """What each worker has made for itself; functions that are scheduled get that of the worker
    that runs them (tf.distribute.coordinator.PerWorkerValues)."""

    def __init__(self, coordinator: ClusterCoordinator, resource: int, structure: Any) -> None:
        self._coordinator = coordinator
        self._resource = resource
        self._structure = structure

    def __del__(self) -> None:
        # Not after the interpreter has begun to end.
        with contextlib.suppress(Exception):
            self._coordinator._native.release_resource(self._resource)


class WorkerIterator(TracedIterator):
    """The iterator of the worker that runs a function."""

    def __init__(self, iterator: GraphIterator) -> None:
        self._iterator = iterator
        self.element_spec = iterator.element_spec

    def _handle_in(self, graph: Any) -> Any:
        # What the dataset leaves open depends on the worker.
        tracing.asked = tracing.asked or bool(self._iterator.values)
        return graph.enter(self._iterator.handle)


class PerWorkerIterator(PerWorkerValues):
    """An iterator that each worker has one of: an argument of functions that are scheduled, which
    take elements with next()."""

    _checkpoint_attribute = "ITERATOR_STATE"

    @property
    def element_spec(self) -> Any:
        """TensorSpecs, nested like the elements."""
        return self._structure.element_spec

    def __iter__(self) -> PerWorkerIterator:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError(
            "an iterator of workers gives no elements to the coordinator: give it to a function "
            "that is scheduled, and call next() there"
        )

    get_next = __next__

    def save(self) -> list[bytes]:
        """Where the iterators of all workers are, by their number, for restore(); waits for what
        each worker runs now."""
        coordinator = self._coordinator
        plan, number = coordinator._plan_of_workers(self._structure.save)
        given: list[list[Tensor]] = [[] for _ in coordinator.strategy._workers]
        found = coordinator._run_on_workers(plan, number, self._resource, given)
        return [position_bytes(position) for position in found]

    def restore(self, positions: Sequence[bytes]) -> None:
        """Each worker's iterator goes where that of its number was. A worker that comes back later
        begins anew. Errors: InvalidArgumentError for what is no position of this dataset."""
        coordinator = self._coordinator
        count = len(coordinator.strategy._workers)
        if len(positions) != count:
            raise ValueError(f"{len(positions)} positions are given for {count} workers")
        spec = TensorSpec([], "string")
        plan, number = coordinator._plan_of_workers(self._structure.restore, spec)
        given = [plan.values([to_tensor(position_bytes(one))]) for one in positions]
        coordinator._run_on_workers(plan, number, self._resource, given)


class PerWorkerDataset:
    """A dataset that each worker reads for itself; iter() gives iterators, new ones each time."""

    def __init__(self, coordinator: ClusterCoordinator, dataset: Dataset) -> None:
        self._coordinator = coordinator
        self._dataset = dataset

    @property
    def element_spec(self) -> Any:
        """TensorSpecs, nested like the elements."""
        return self._dataset.element_spec

    def build(self) -> PerWorkerDataset:
        """Itself."""
        return self

    def __iter__(self) -> PerWorkerIterator:
        if state.graph is not None:
            raise RuntimeError(
                "__iter__() is not supported inside of tf.function or in graph mode: make the "
                "iterator outside, and give it to the function"
            )
        return self._coordinator._make_iterator(self._dataset)


def milliseconds(timeout: float | None) -> int:
    """A time in seconds for the core; None: 0, which is none."""
    if timeout is None:
        return 0
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout is {timeout!r}; it must be a number of seconds, or None")
    return max(int(timeout * MS), 1)


__all__ = [
    "MS", "PerWorkerDataset", "PerWorkerIterator", "PerWorkerTensor", "PerWorkerValues",
    "RemoteValue", "WorkerIterator", "get_current_worker_index", "milliseconds", "tracing",
]  # fmt: skip
