"""The graph of what runs on the cluster of a strategy, in the order of programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .. import errors, v1
from .._dispatch import ENGINE, state
from .._graphs import Effects, FuncGraph, add_effects, effects_in, legal_name
from .._iterators import DatasetIterator
from .._native import GraphBase, Output
from ..variable import Variable

#: Ops that read what their handle is of. Every other op with a handle changes it.
_READS = {
    "AccumulatorSize", "IteratorSave", "QueueIsClosed", "QueueSize", "TableExport", "TableFind",
    "TableSize", "VariableGather", "VariableIsInitialized", "VariableRead", "VariableUpdateNorms",
}  # fmt: skip
#: Ops without a handle that do something to be seen.
_SEEN = {"Assert", "HostFunction", "Print"}
#: Ops whose values serve all functions.
_LASTING = {"Accumulator", "Const", "DatasetIterator", "MutableTable", "Queue", "Variable"}
#: Ops that run bodies.
_CONTROL = {"If", "Scan", "While"}
_stateful: dict[str, bool] = {}


def _is_stateful(op: str) -> bool:
    if op not in _stateful:
        _stateful[op] = op not in _CONTROL and ENGINE.schema(op)["stateful"]
    return _stateful[op]


def _effects_of(op: str, inputs: Sequence[Output]) -> Effects:
    """What a node reads and changes, by its inputs."""
    if not _is_stateful(op):
        return {}
    if op in _SEEN:
        return {None: True}
    if not inputs or inputs[0].dtype.name != "string":
        return {}
    # Updates by optimizers have handles of slots behind what they are given.
    handles = [inputs[0]]
    if op.startswith("VariableUpdate"):
        handles += [value for value in inputs[1:] if value.dtype.name == "string"]
    return {(handle.node, handle.index): op not in _READS for handle in handles}


class Trace:
    """What a function does while it is traced. `begin`: the number of its first node."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self._writer: dict[Any, int] = {}
        self._readers: dict[Any, list[int]] = {}
        #: Nodes that must run.
        self.targets: list[int] = []
        #: Variables of this process that it reads, with what is fed with their values.
        self.outside: dict[int, tuple[Variable, Output]] = {}
        #: What datasets leave open.
        self.open_values: list[Output] = []
        #: What each worker has of its own, such as a variable, by id().
        self.of_workers: dict[int, Any] = {}
        #: In step: optimizers that have given their gradients, by id(), what ends the step for
        #: these, and what is fed with the number of the step.
        self.contributed: dict[int, Any] = {}
        self.steps: list[int] = []
        self.step: Output | None = None
        #: With copies: the dense variables that optimizers update. In the second trace, what stands
        #: for variables, by their id(), and how often each optimizer is applied, by its own.
        self.trained: list[Any] = []
        self.copies: dict[int, Any] | None = None
        self.applied: dict[int, int] = {}
        self._reads: dict[Any, Output] = {}

    @contextmanager
    def at_parameter_servers(self) -> Iterator[None]:
        """Variables are themselves in the context."""
        before, self.copies = self.copies, None
        try:
            yield
        finally:
            self.copies = before

    def before(self, effects: Effects) -> list[int]:
        """The nodes that one with these effects comes after."""
        found: list[int] = []
        for key, changes in effects.items():
            if key in self._writer:
                found.append(self._writer[key])
            if changes:
                found += self._readers.get(key, [])
        return found

    def record(self, node: int, effects: Effects) -> None:
        """Told of a node, when it is there."""
        for key, changes in effects.items():
            if changes:
                self._writer[key] = node
                self._readers[key] = []
                self._reads.pop(key, None)
            else:
                self._readers.setdefault(key, []).append(node)
        if any(effects.values()):
            self.targets.append(node)

    def read_of(self, handle: Output) -> Output | None:
        """What was read of a variable, if nothing has changed it since."""
        return self._reads.get((handle.node, handle.index))

    def keep_read(self, handle: Output, value: Output) -> None:
        """`value` serves all readers until the variable is changed."""
        self._reads[handle.node, handle.index] = value


class ClusterGraph(v1.Graph):
    """What runs on a cluster, all functions and steps of their own in one graph. While a function
    is traced, a node that reads something runs after those before it that change this, and one that
    changes it after all of them; what has nothing in common is not ordered."""

    def __init__(self) -> None:
        super().__init__()
        self.changing = threading.RLock()
        #: Nodes made while a function was traced that serve others too.
        self.lasting: set[int] = set()
        self._trace: Trace | None = None
        self._coming: Effects = {}

    @property
    def trace(self) -> Trace:
        """Of the function that is being traced."""
        assert self._trace is not None
        return self._trace

    @property
    def open_values(self) -> list[Output] | None:
        return None if self._trace is None else self._trace.open_values

    @contextmanager
    def tracing(self, scope: str) -> Iterator[Trace]:
        """What is added in the context is a function's; names begin with `scope`/."""
        with self.changing:
            before, tapes = self._trace, state.tapes
            self._trace, state.tapes = Trace(len(self.native)), ()
            try:
                with self.as_default(), self.init_scope(), self.colocate_with(None, True):
                    with self.name_scope(None), self.name_scope(legal_name(scope)):
                        yield self._trace
            finally:
                self._trace, state.tapes = before, tapes

    def placed(self, device: str, beside: Output | None) -> AbstractContextManager[Any]:
        """Nodes that are added in the context are on a device, or with the variable `beside`, which
        may have moved from where the graph has it."""
        if beside is None:
            return self.device(device)
        return self.colocate_with(self.operation(beside))

    def add_variable(
        self, name: str, device: str, dtype: Any, shape: Sequence[int],
        beside: Output | None = None,
    ) -> Output:  # fmt: skip
        """The handle of a new variable, which has no value yet, on a device or with another one;
        outside of what is traced."""
        with self.tracing(name), self.name_scope(None), self.placed(device, beside):
            full = self.unique_name(legal_name(name))
            attrs = {"shared_name": full, "dtype": dtype, "shape": tuple(shape)}
            return self.add("Variable", (), attrs, full + "/")

    def enter(self, value: Any) -> Output:
        entered = super().enter(value)
        begin = len(self.native) if self._trace is None else self._trace.begin
        lasts = self.native.node_op(entered.node) in _LASTING or entered.node in self.lasting
        if entered.node < begin and not lasts:
            raise errors.InvalidArgumentError(
                f"{entered!r} ('{entered.node_name}') was made while a function was traced, and is "
                "used outside of it: return it from the function"
            )
        return entered

    def add(self, op: str, inputs: Any, attrs: Any, name: str | None) -> Any:
        effects = _effects_of(op, inputs)
        if not effects or self._trace is None:
            return super().add(op, inputs, attrs, name)
        with self._waiting_for([*self.controls, *self._trace.before(effects)]):
            made = super().add(op, inputs, attrs, name)
        self._trace.record(len(self.native) - 1, effects)
        return made

    def before_bodies(self, bodies: Sequence[FuncGraph]) -> list[int]:
        self._coming = effects_in(self, bodies)
        if self._trace is None:
            return self.controls
        return [*self.controls, *self._trace.before(self._coming)]

    def place_nodes(self, native: GraphBase, first: int) -> None:
        super().place_nodes(native, first)
        for node in range(first, len(native)):
            op = native.node_op(node)
            if native is not self.native:
                made = native.__dict__.setdefault("effects", {})
                add_effects(made, _effects_of(op, native.node_inputs(node)))
            elif self._coming and op in _CONTROL and self._trace is not None:
                self._trace.record(node, self._coming)
                self._coming = {}

    def keep(self, things: Sequence[object]) -> None:
        if any(isinstance(thing, DatasetIterator) for thing in things):
            raise errors.FailedPreconditionError(
                "an iterator of the coordinator is used by a function that runs on the cluster, "
                "where it is not: give the dataset to ClusterCoordinator."
                "create_per_worker_dataset(), and iter() of what that returns to the function, as "
                "an argument"
            )
        super().keep(things)

    def read_variable(self, variable: Any) -> Output:
        known = self.trace.outside
        if id(variable) not in known:
            with self.init_scope():
                made = self.placeholder(variable.dtype, variable.shape, legal_name(variable.name))
            known[id(variable)] = (variable, made)
        return known[id(variable)][1]

    def assign_variable(self, variable: Any, value: Output) -> None:
        raise errors.FailedPreconditionError(
            f"variable '{variable.name}' lives in the coordinator and is assigned to by a function "
            "that runs on the cluster: make the variable in strategy.scope()"
        )
