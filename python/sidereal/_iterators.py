"""Iterators of datasets: of this process, of graphs, and of one call of a function."""

from __future__ import annotations

import atexit
import dis
import itertools
import os
import secrets
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import errors, nest
from ._conversion import inside
from ._dispatch import ENGINE, apply, convert, state, to_tensor
from ._elements import DatasetSpec, as_value, flatten
from ._native import DatasetReading, Output, Tensor
from ._pipelines import begin_generator
from ._resources import Resource, component_attrs, done
from .ops import control

_open: weakref.WeakSet[DatasetIterator] = weakref.WeakSet()
_numbers = itertools.count(1)
#: Elements that the trace of a function takes of one iterator: more are a loop without an end.
_TRACED_MAX = 1000
_GET_ITER = dis.opmap["GET_ITER"]


@atexit.register
def _close_all() -> None:
    """Ends threads while there is a Python that they may call."""
    for iterator in list(_open):
        iterator.close()


class InFunctions:
    """What iterators do while a function is traced. `element_spec` and _handle_in() say how."""

    element_spec: Any
    #: How many elements the trace of a function takes, and of which.
    _taken = 0
    _taken_by: weakref.ref[Any] | None = None

    def _handle_in(self, graph: Any) -> Any:
        """The handle as a value of a graph."""
        raise NotImplementedError

    def _next_in(self, graph: Any, name: str | None = None) -> Any:
        trace = getattr(graph, "trace", graph)
        if self._taken_by is None or self._taken_by() is not trace:
            self._taken, self._taken_by = 0, weakref.ref(trace)
        self._taken += 1
        if self._taken > _TRACED_MAX:
            raise errors.UnimplementedError(
                f"a function that is traced takes more than {_TRACED_MAX} elements of an iterator, "
                "as a loop of Python without an end does: loop with dataset.reduce(), or "
                "sidereal.while_loop"
            )
        return next_of(self._handle_in(graph), self.element_spec, name)

    def _loop_iterator(self) -> Any:
        """What a loop of a graph takes its elements from."""
        return self

    def _next_or_end(self) -> tuple[Any, list[Any]]:
        """Whether there is one more element, and its components."""
        handle = self._handle_in(state.graph)
        there, *components = apply("IteratorNextOrEnd", (handle,), _attrs_of(self.element_spec))
        return there, components

    def _save_in(self, graph: Any) -> Any:
        return apply("IteratorSave", (self._handle_in(graph),))

    def _restore_in(self, graph: Any, position: Any) -> Any:
        return done(apply("IteratorRestore", (self._handle_in(graph), convert(position))))


def refuse_loop() -> None:
    """UnimplementedError when the caller of __iter__() is a `for` loop of Python."""
    frame = sys._getframe(2)
    if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _GET_ITER:
        raise errors.UnimplementedError(
            "a function that is traced has a loop of Python over a dataset, which is traced once: "
            "loop with dataset.reduce(initial_state, function), call next() of iter(dataset) for "
            "each element that one call takes, or loop outside of the function"
        )


class DatasetIterator(InFunctions):
    """Gives out the elements of a dataset (tf.data.Iterator): next(it) ends with StopIteration,
    get_next() with OutOfRangeError.

    Elements are made ahead where the dataset has prefetch() or a parallel map(), on threads that
    end with the iterator. In functions, each call takes elements of it. Thread: any.
    """

    _checkpoint_attribute = "ITERATOR_STATE"

    def __init__(self, dataset: Any) -> None:
        self._handle: Tensor | None = None
        self._dataset = dataset  # Keeps its Python functions.
        self._reading = DatasetReading(
            dataset._now(), ENGINE, secrets.randbits(63), read_threads(), begin_generator
        )
        _open.add(self)

    @property
    def element_spec(self) -> Any:
        """TensorSpecs, nested like the elements."""
        return self._dataset.element_spec

    def __iter__(self) -> DatasetIterator:
        if state.graph is not None:
            refuse_loop()
        return self

    def __next__(self) -> Any:
        if state.graph is not None:
            return self._next_in(state.graph)
        components = self._reading.next()
        if components is None:
            raise StopIteration
        return self._dataset._pack(components)

    def get_next(self, name: str | None = None) -> Any:
        """The next element; OutOfRangeError at the end."""
        if state.graph is not None:
            return self._next_in(state.graph, name)
        components = self._reading.next()
        if components is None:
            raise errors.OutOfRangeError("End of sequence: the dataset has no more elements")
        return self._dataset._pack(components)

    def _handle_in(self, graph: Any) -> Any:
        if self._handle is None:
            name = f"dataset_iterator_{next(_numbers)}"
            self._reading.share(name)
            self._handle = to_tensor(name)
            weakref.finalize(self, ENGINE.erase_resource, name).atexit = False
        graph.keep([self])
        return self._handle

    def save(self) -> Any:
        """Where it is, as bytes for restore(); in a function as a scalar of strings. What
        shuffle(), prefetch() and cache() hold is part of it."""
        return self._reading.save() if state.graph is None else self._save_in(state.graph)

    def restore(self, position: Any) -> None:
        """Goes where an iterator of an equal dataset was: the same elements follow, if files and
        generators give the same. Elements of from_generator() and of files are passed over for
        that. DataLossError for bytes that are no position, in a function InvalidArgumentError; the
        iterator stays where it is then."""
        if state.graph is not None:
            self._restore_in(state.graph, position)
            return
        self._reading.restore(position_bytes(position))

    def close(self) -> None:
        """Ends its threads; what waits for it gets CancelledError."""
        self._reading.close()


class GraphIterator(Resource):
    """An iterator in a graph of sidereal.v1: a dataset is read where its node is placed, on threads
    of its own, from the first get_next() that a session runs."""

    def __init__(
        self, dataset: Any, shared_name: str | None = None, values: Sequence[Output] = ()
    ) -> None:
        """`values`: what the dataset leaves open."""
        self.element_spec = dataset.element_spec
        self.values = values
        definition = {"definition": dataset.serialize()}
        super().__init__("DatasetIterator", definition, "DatasetIterator", shared_name, values)
        add = getattr(state.graph, "add_to_collection", None)
        if add is not None:
            add("iterators", self)

    def get_next(self, name: str | None = None) -> Any:
        """The next element; the session raises OutOfRangeError at the end."""
        return next_of(self.handle, self.element_spec, name)

    def save(self) -> Any:
        """Where it is, a scalar of strings, for restore()."""
        return self._apply("IteratorSave")

    def restore(self, position: Any) -> Any:
        """The operation that goes where an iterator of an equal dataset was; InvalidArgumentError
        for what is no position."""
        return done(self._apply("IteratorRestore", (convert(position),)))


class TracedIterator(InFunctions):
    """An iterator that is there while a function is traced, and nowhere else."""

    def __iter__(self) -> TracedIterator:
        refuse_loop()
        return self

    def __next__(self) -> Any:
        return self.get_next()

    def get_next(self, name: str | None = None) -> Any:
        """The next element; the function ends with OutOfRangeError at the end."""
        return self._next_in(self._present(), name)

    def save(self) -> Any:
        """Where it is, a scalar of strings, for restore()."""
        return self._save_in(self._present())

    def restore(self, position: Any) -> None:
        """Goes where an iterator of an equal dataset was; InvalidArgumentError for what is no
        position."""
        self._restore_in(self._present(), position)

    def _present(self) -> Any:
        """The graph that is traced."""
        return state.graph


class CallIterator(TracedIterator):
    """What iter(dataset) is in a function: each call has one of its own, which begins with the
    first element and ends with the call. next() at the end raises OutOfRangeError in the call."""

    def __init__(self, dataset: Any) -> None:
        graph = state.graph
        if graph is None or graph.open_values is None:
            raise errors.UnimplementedError(
                "a dataset is iterated while a graph of sidereal.v1 is built: use "
                "sidereal.v1.data.make_one_shot_iterator()"
            )
        self.element_spec = dataset.element_spec
        attrs = {
            "definition": dataset._text_in_graph(), "of_call": True,
            "shared_name": f"iterator_{next(_numbers)}",
        }  # fmt: skip
        values = [graph.enter(value) for value in dataset._values]
        self._handle = apply("DatasetIterator", values, attrs)

    def _present(self) -> Any:
        if state.graph is None:
            raise errors.FailedPreconditionError(
                "an iterator that a function has made ended with its call: make it outside"
            )
        return state.graph

    def _handle_in(self, graph: Any) -> Any:
        return graph.enter(self._handle)


def next_of(handle: Any, element_spec: Any, name: str | None = None) -> Any:
    """A node that takes an element of an iterator, and its outputs nested like `element_spec`."""
    made = apply("IteratorNext", (handle,), _attrs_of(element_spec), name=name)
    return nest.pack(element_spec, list(made) if isinstance(made, tuple) else [made])


def while_elements(iterator: CallIterator, initial: Any, step: Callable[[Any, Any], Any]) -> Any:
    """What `initial` becomes by step(state, element) for all elements, as a loop of the graph."""
    def body(_: Any, components: Any, now: Any) -> Any:
        made = inside(step)(now, nest.pack(iterator.element_spec, list(components)))
        leaves = [as_value(leaf) for leaf in flatten(made)]
        there, components = iterator._next_or_end()
        return there, tuple(components), nest.pack(now, leaves)

    there, components = iterator._next_or_end()
    start = (there, tuple(components), initial)
    return control.while_loop(lambda there, *_: there, body, start)[2]


def position_bytes(position: Any) -> bytes:
    """A position as save() gives it, or as a function has returned it."""
    if isinstance(position, bytes):
        return position
    value = as_value(position).numpy()
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, bytes):
        return found
    raise TypeError(f"a position is what save() gives, and not {position!r:.80}")


def _attrs_of(element_spec: Any) -> dict[str, Any]:
    specs = nest.flatten(element_spec)
    if any(isinstance(spec, DatasetSpec) for spec in specs):
        raise errors.UnimplementedError(
            "an element has a window; make a tensor of it, as in "
            "ds.window(n).flat_map(lambda w: w.batch(n))"
        )
    return component_attrs((spec.dtype for spec in specs), (spec.shape for spec in specs))


def read_threads() -> int:
    """How many threads read where as many as seem good are asked for."""
    return max(1, min(16, len(os.sched_getaffinity(0))))


__all__ = [
    "CallIterator", "DatasetIterator", "GraphIterator", "TracedIterator", "next_of",
    "position_bytes", "read_threads", "refuse_loop", "while_elements",
]  # fmt: skip
