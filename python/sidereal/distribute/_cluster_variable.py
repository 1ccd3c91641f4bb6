"""Variables on parameter servers, as the coordinator and what runs on workers see them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from .. import errors
from .._dispatch import apply, convert, state
from .._graphs import ElsewhereError, FuncGraph, Graph
from .._native import Output, Tensor
from ..dtypes import name_of
from ..indexed_slices import IndexedSlices
from ..ops._arguments import index_tensor
from ..optimizers import as_float64
from ..variable import Variable, _check_rows, check_shape, fitting, initial_tensor
from ._cluster_graph import ClusterGraph

if TYPE_CHECKING:
    from .parameter_server_strategy import ParameterServerStrategy


class _Caching(threading.local):
    """Values that a thread has read in cache_variable_reads(), by variable and graph."""

    values: dict[Any, Any] | None = None


_caching = _Caching()


@contextmanager
def cache_variable_reads() -> Iterator[None]:
    """A variable on a parameter server is read once while the context lasts, whoever changes it
    meanwhile. ValueError inside of another one."""
    if _caching.values is not None:
        raise ValueError("cache_variable_reads scope cannot be nested")
    _caching.values = {}
    try:
        yield
    finally:
        _caching.values = None


def may_run_anywhere(initial_value: Any) -> bool:
    """Whether an initial value is a function that says that it is the same in any process."""
    return getattr(getattr(initial_value, "func", initial_value), "_runs_anywhere", False)


class ClusterVariable(Variable):
    """A variable on a parameter server of a strategy. The coordinator reads and changes it at once,
    by steps of the strategy's session; functions that are traced for the cluster do where and when
    they run."""

    def __init__(
        self, strategy: ParameterServerStrategy, device: str, initial_value: Any, name: str,
        dtype: Any, shape: Any, beside: ClusterVariable | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self._strategy = strategy
        #: Where it is: "/job:ps/replica:0/task:0/device:CPU:0".
        self.device = device
        self._graph: ClusterGraph = strategy._graph
        #: The one that it was made to be with, wherever that goes.
        self._made_beside = beside
        base = None if beside is None else beside._handle
        #: The node that gives it its first value; None: that was sent, and is not known any more.
        self._first_value: int | None = None
        if not may_run_anywhere(initial_value):
            value: Any = initial_tensor(initial_value, dtype, shape)
            self._add_handle(value, name, base, options)
            with state.at_once():
                self._do("VariableAssign", [value])
            return
        # Made where the variable is, and not sent.
        with self._graph.tracing(f"{name}/Initializer"), self._graph.placed(device, base):
            value = self._graph.enter(convert(initial_value(), dtype))
            check_shape(value.shape, shape)
            self._add_handle(value, name, base, options)
            made = self._add("VariableAssign", [value])
        self._first_value = made.node
        strategy._give_first_value(made.node)

    def _add_handle(
        self, value: Any, name: str, base: Output | None, options: dict[str, Any]
    ) -> None:
        self._describe(name, value.dtype, value.shape, **options)
        #: The scalar string by which nodes know it.
        self._handle: Output = self._graph.add_variable(
            name, self.device, self.dtype, self.shape, base
        )

    # --- Where it is used.

    @staticmethod
    def _sketch_of(graph: Graph | None) -> FuncGraph | None:
        """The graph that never runs which `graph` is or is a body in."""
        while isinstance(graph, FuncGraph) and graph.outer is not None:
            graph = graph.outer
        return graph if isinstance(graph, FuncGraph) and graph.is_sketch else None

    def _graph_within(self, graph: Graph) -> ClusterGraph:
        """The strategy's graph, which `graph` is or is a body in."""
        root = graph
        while isinstance(root, FuncGraph) and root.outer is not None:
            root = root.outer
        if root is self._graph:
            return self._graph
        if isinstance(root, FuncGraph):
            raise self._is_elsewhere(root.name)
        raise errors.InvalidArgumentError(
            f"variable '{self.name}' of {self.device} is used in a graph that is not its "
            "strategy's: use it in functions, or its value, variable.numpy()"
        )

    def _is_elsewhere(self, function: str) -> ElsewhereError:
        return ElsewhereError(
            f"'{function}' uses variable '{self.name}' of {self.device} and cannot become part of "
            "this process: call it, or schedule it",
            self._strategy,
        )

    @property
    def _copy(self) -> Any:
        """What stands for it in the function that is traced: a copy that the worker has which runs
        that. None: nothing does."""
        trace = self._graph._trace
        return None if trace is None or trace.copies is None else trace.copies.get(id(self))

    @property
    def _used(self) -> Output:
        """The handle of what the function uses that is traced."""
        return self._handle if self._copy is None else self._copy.own

    def _stand_in(self) -> Variable:
        raise self._is_elsewhere("the function")

    def _add(self, op: str, inputs: Sequence[Any], attrs: Any = None) -> Any:
        """A node beside it in the graph that is being built, with its handle first."""
        graph = state.graph
        assert graph is not None
        self._graph_within(graph)
        entered = [graph.enter(value) for value in (self._used, *inputs)]
        with self._nodes_beside():
            return graph.add(op, entered, attrs, None)

    def _nodes_beside(self) -> AbstractContextManager[Any]:
        """Nodes that are added in the context are where it is."""
        if state.graph is None or self._sketch_of(state.graph) is not None:
            return nullcontext()
        root = self._graph_within(state.graph)
        if self._copy is not None:
            return nullcontext()
        return root.colocate_with(root.operation(self._handle))

    def _do(self, op: str, inputs: Sequence[Any], attrs: Any = None) -> Any:
        """A node as of _add(), or, outside of graphs, what it gives."""
        sketch = self._sketch_of(state.graph)
        if sketch is not None:
            # Nothing is there yet that could be changed.
            sketch.assign_variable(self, sketch.read_variable(self))
            return None
        if state.graph is not None:
            self._check_not_held(state.graph)
            return self._add(op, inputs, attrs)
        return self._strategy._run_node(self, op, [convert(value) for value in inputs], attrs)

    @property
    def _home(self) -> Any:
        return self._strategy

    # --- Reading.

    def _read_attrs(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "shape": self.shape}

    def _present(self) -> Tensor:
        with state.at_once():
            return self._do("VariableRead", [], self._read_attrs())

    def _quietly(self) -> Any:
        graph, known = state.graph, _caching.values
        if self._sketch_of(graph) is not None:
            assert graph is not None
            return graph.read_variable(self)
        if known is None:
            return self._present() if graph is None else self._read_in(graph)
        # Values of one function are not another's.
        within = graph._trace if graph is self._graph else graph
        key = (id(self), id(within))
        if key not in known:
            value = self._present() if graph is None else self._read_in(graph)
            known[key] = (value, self, within)
        return known[key][0]

    def _read_in(self, graph: Graph) -> Output:
        root = self._graph_within(graph)
        if graph is not root:
            return self._add("VariableRead", [], self._read_attrs())
        handle = self._used
        known = root.trace.read_of(handle)
        if known is None:
            with root.init_scope():
                known = self._add("VariableRead", [], self._read_attrs())
            root.trace.keep_read(handle, known)
        return known

    def _as_tensor(self) -> Any:
        graph = state.graph
        if self._sketch_of(graph) is not None:
            return self._quietly()
        if graph is None:
            value = self._quietly()
            for tape in state.tapes:
                if tape._graph is None:
                    tape._read(self, value)
            return value
        self._graph_within(graph)
        homes = [tape._graph for tape in state.tapes if self._is_watched(tape)]
        if not homes or homes[0] is graph:
            value = self._quietly()
        else:
            # A tape around a conditional or loop: what this takes from outside has a gradient.
            with homes[0].building():
                outside = self._quietly()
            self._hold(graph, homes[0])
            value = graph.enter(outside)
            for tape in state.tapes:
                if self._is_watched(tape) and tape._graph is not graph:
                    tape._read(self, tape._graph.enter(outside))
        for tape in state.tapes:
            if tape._graph is graph:
                tape._read(self, value)
        return value

    def _is_watched(self, tape: Any) -> bool:
        """Whether a tape of a graph is told when it is read."""
        if tape._graph is None:
            return False
        return (tape._watch_variables and self.trainable) or id(self) in tape._watched

    def _bodies(self, graph: Graph, home: Graph | None = None) -> Iterator[Any]:
        """The bodies around what is being built, up to `home`."""
        body: Graph | None = graph
        while isinstance(body, FuncGraph) and body is not home:
            yield body
            body = body.outer

    def _hold(self, graph: Graph, home: Graph) -> None:
        """Notes that bodies use a value from before them."""
        for body in self._bodies(graph, home):
            held, changed = _notes(body)
            if id(self) in changed:
                raise self._both()
            held[id(self)] = self

    def _check_not_held(self, graph: Graph) -> None:
        for body in self._bodies(graph):
            held, changed = _notes(body)
            if id(self) in held:
                raise self._both()
            changed[id(self)] = self

    def _both(self) -> errors.Error:
        return errors.UnimplementedError(
            f"variable '{self.name}' is changed in a conditional or loop, and read there by a "
            "GradientTape around it: put the tape inside, or return the new value and assign it "
            "outside"
        )

    def value(self) -> Any:
        """The value: a tensor, which does not change with the variable."""
        return self._as_tensor()

    read_value = value

    def sparse_read(self, indices: Any, name: str | None = None) -> Any:
        """The rows at `indices`; the others stay where they are."""
        return self._gather(indices, name)

    def _gather(self, indices: Any, name: str | None) -> Any:
        """For gather() along the first dimension."""
        places = index_tensor(indices)
        attrs = {"axis": 0, "batch_dims": 0}
        is_plain = not state.tapes and _caching.values is None and type(places) is Tensor
        if state.graph is None and is_plain:
            return self._strategy._run_method(self, "_gather", [places])
        return apply("Gather", (self._as_tensor(), places), attrs, name=name)

    # --- Changing.

    def assign(
        self, value: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ClusterVariable:  # fmt: skip
        """Gives it another value of its shape and dtype."""
        return self._changed("VariableAssign", [fitting(self, value)])

    def assign_add(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ClusterVariable:  # fmt: skip
        """Adds to it: no other change comes between its read and its write."""
        return self._changed("VariableAssignAdd", [fitting(self, delta)])

    def assign_sub(
        self, delta: Any, use_locking: bool | None = None, name: str | None = None,
        read_value: bool = True,
    ) -> ClusterVariable:  # fmt: skip
        """Subtracts from it: no other change comes between its read and its write."""
        return self._changed("VariableAssignSub", [fitting(self, delta)])

    def batch_scatter_update(self, sparse_delta: IndexedSlices, *options: Any) -> ClusterVariable:
        """See Variable.batch_scatter_update(). Read and written in two steps."""
        super().batch_scatter_update(sparse_delta)
        return self

    def _changed(self, op: str, inputs: Sequence[Any]) -> ClusterVariable:
        self._do(op, inputs)
        return self

    def _scatter(self, how: str, rows: IndexedSlices) -> ClusterVariable:
        _check_rows(f"scatter_{how}", rows)
        values, indices = convert(rows.values, self.dtype), index_tensor(rows.indices)
        return self._changed(f"VariableScatter{how.title()}", [indices, values])

    def _combine(self, how: str, rows: IndexedSlices) -> ClusterVariable:
        _check_rows(f"scatter_{how}", rows)
        if state.graph is not None:
            super()._combine(how, rows)
            return self
        values, indices = convert(rows.values, self.dtype), index_tensor(rows.indices)
        self._strategy._run_method(self, "_combine_rows", [indices, values], how)
        return self

    def _combine_rows(self, indices: Any, values: Any, how: str) -> None:
        self._combine(how, IndexedSlices(values, indices))

    def _update_in_place(
        self, attrs: dict[str, Any], grad: Any, slots: Sequence[Any], step: Any, rate: Any
    ) -> None:
        """An optimizer's update, where the variable and its slots are."""
        if isinstance(grad, IndexedSlices):
            op, change = "VariableUpdateRows", [grad.indices, convert(grad.values, self.dtype)]
        else:
            op, change = "VariableUpdateDense", [convert(grad, self.dtype)]
        if isinstance(rate, Variable):
            rate = rate.value()  # Read where that is.
        with self._nodes_beside():
            numbers = [as_float64(step), as_float64(rate)]
        self._do(op, [*change, *numbers, *(slot._used for slot in slots)], attrs)

    # --- Where others are made.

    def _in_scope(self) -> AbstractContextManager[Any]:
        return self._strategy._making()

    def _beside(self) -> AbstractContextManager[Any]:
        return self._strategy.extended.colocate_vars_with(self)

    # --- As a value of Python.

    def __repr__(self) -> str:
        # Without the value, which is on another machine.
        return (
            f"<Variable '{self.name}' shape={self.shape} dtype={name_of(self.dtype)}, "
            f"device={self.device}>"
        )

    def __format__(self, spec: str) -> str:
        return format(self._present(), spec) if spec else repr(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar variable has no length")
        return self.shape[0]

    def __deepcopy__(self, memo: Any) -> Any:
        raise NotImplementedError(
            f"variable '{self.name}' of {self.device} cannot be copied: make another one in "
            "strategy.scope()"
        )


def check_trained(variables: Sequence[Any], consistency: str) -> None:
    """InvalidArgumentError for one that is not on a parameter server: with this consistency only
    those are trained."""
    for variable in variables:
        if not isinstance(variable, ClusterVariable) or variable._home is None:
            raise errors.InvalidArgumentError(
                f"variable '{variable.name}' is not on a parameter server; with consistency "
                f"{consistency!r} only those are trained: make it in strategy.scope()"
            )


def _notes(body: Any) -> tuple[dict[int, Any], dict[int, Any]]:
    """Variables that a body uses as they were before it, and those that it changes."""
    return body.native.__dict__.setdefault("cluster_variables", ({}, {}))


__all__ = ["ClusterVariable", "cache_variable_reads", "check_trained"]
