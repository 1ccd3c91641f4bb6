"""Definitions of datasets: what they are made with, and functions on their elements.

The dataset that a function of flat_map() or interleave() returns is made of values that are not
there yet. They become numbered values of that function ("slots"), which fill the definition in.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from . import _native, errors, nest
from ._conversion import converting
from ._dispatch import state
from ._elements import DatasetSpec, as_value, map_leaves
from ._graphs import FuncGraph, legal_name
from ._native import DatasetDefinition, Output, Tensor

#: What begins generators, by number, kept by the datasets of these.
_generators: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class Generator:
    """A Python generator of elements: begin() gives an iterator of lists of Tensors."""

    def __init__(self, begin: Callable[[], Iterator[list[Tensor]]]) -> None:
        self.begin = begin
        self.number = next(_numbers)
        _generators[self.number] = self


def begin_generator(number: int) -> Iterator[list[Tensor]]:
    """Begins a generator of this process."""
    generator = _generators.get(number)
    if generator is None:
        raise errors.FailedPreconditionError(
            f"there is no generator {number} in this process: from_generator() runs Python code, "
            "in the process that made it only"
        )
    return generator.begin()


class _Open(threading.local):
    """Values that datasets of this thread leave open, which are of `graph`; None: these may not."""

    values: list[Output] | None = None
    graph: Any = None


_open = _Open()


@contextmanager
def leaving_open() -> Iterator[list[Output]]:
    """Values of the graph that is being built, or of any if none is, that datasets are made with in
    the context, by the number that they have in the definitions. Whoever reads the dataset fills
    them in."""
    before = _open.values, _open.graph
    values: list[Output] = []
    _open.values, _open.graph = values, state.graph
    try:
        yield values
    finally:
        _open.values, _open.graph = before


def parameter(value: Any, dtype: Any = None) -> Any:
    """What a dataset is made with, for DatasetDefinition.make()."""
    made = as_value(value, dtype)
    if type(made) is not Output:
        return made
    graph, values = state.graph, _open.values
    if values is None or graph is not _open.graph:
        values = None if graph is None else graph.open_values
    if values is None:
        raise errors.InvalidArgumentError(
            f"a dataset is made of {made!r}, which has no value yet; make it outside of the "
            "function, or in a function that flat_map() or interleave() calls"
        )
    entered = made if graph is None else graph.enter(made)
    values.append(entered)
    return len(values) - 1, entered.dtype, entered.shape


def open_values() -> Sequence[Output]:
    """What datasets that are made now may leave open, by number."""
    if _open.values is not None and state.graph is _open.graph:
        return ()
    return () if state.graph is None else state.graph.open_values or ()


class VariableUse:
    """A variable that functions of a dataset read: its value is taken at each iter()."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable
        self.number = next(_numbers)


class Traced:
    """A Python function on elements as a function of a graph.

    `structure` is what it returned, with TensorSpecs or, where it returned a dataset, that dataset;
    `parameters` what it captured.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        definition: DatasetDefinition,
        element_spec: Any,
        open_dataset: Callable[[int, Any], Any],
        gives_dataset: bool = False,
    ) -> None:
        named = getattr(function, "__name__", name)
        graph = FuncGraph(legal_name(named))
        graph.takes_outputs = _open.values is not None
        specs = nest.flatten(element_spec)
        with graph.building(), leaving_open() if gives_dataset else nullcontext() as values:
            arguments = [
                open_dataset(index, spec)
                if isinstance(spec, DatasetSpec)
                else graph.input(dtype, shape)
                for index, (spec, (dtype, shape, _)) in enumerate(zip(specs, definition.outputs))
            ]
            element = nest.pack(element_spec, arguments)
            run = converting(function)
            result = run(*element) if type(element) is tuple else run(element)
            if values is not None:
                self.structure = result
                outputs = values
            else:
                self.structure = map_leaves(_checked(name, named), result)
                outputs = [graph.enter(leaf) for leaf in nest.flatten(self.structure)]
        if graph.assigned:
            raise errors.UnimplementedError(
                f"{name}: '{named}' assigns to variable '{graph.assigned[0][0].name}'; datasets "
                "are read on other threads, and ahead: assign in the program that reads them"
            )
        self.body = _native.cut_body(graph.native, graph.inputs, outputs)
        #: Python functions that the graph refers to.
        self.kept: list[object] = [*graph.kept]
        self.parameters = [self._captured(outside) for outside, _ in graph.captures]

    def _captured(self, outside: Any) -> Any:
        if not hasattr(outside, "_cell"):
            return parameter(outside)
        use = VariableUse(outside)
        self.kept.append(use)
        return as_value(outside), use.number


def _checked(name: str, named: str) -> Callable[[Any], Any]:
    """What turns leaves that a function returned into values."""

    def value_of(leaf: Any) -> Any:
        if leaf is None or hasattr(leaf, "element_spec"):
            raise TypeError(
                f"{name}: '{named}' returns {type(leaf).__name__}, which is no tensor; return "
                "tensors, numbers, or tuples and dicts of them (of datasets: use flat_map())"
            )
        return as_value(leaf)

    return value_of

