"""Functions traced for a cluster: what to feed, what to run, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import errors, nest
from .._dispatch import state
from .._native import Output, Tensor
from ..function import (
    ConcreteFunction,
    Function,
    TensorSpec,
    _as_result,
    _describe_leaf,
    _flatten_result,
    _pack_result,
    _variables_of,
)
from ..variable import Variable
from ._cluster_graph import ClusterGraph, Trace


def is_tensor(leaf: Any) -> bool:
    """True for an argument that becomes a placeholder; all others are part of the trace."""
    return isinstance(leaf, (Tensor, TensorSpec))


class Call:
    """A function with arguments: `leaves` are these, one after the other, what has a value as
    tensors."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._run: Callable[..., Any] = function
        self._signature: Any = None
        if isinstance(function, Function):
            self._signature = function.input_signature
            args, kwargs = function._bind(tuple(args), kwargs)
            self._run = function.traced_function
        found = nest.flatten((tuple(args), kwargs))
        self.leaves = [Function._as_argument(leaf) for leaf in found]
        self._structure = (tuple(args), kwargs)

    def run(self, leaves: Sequence[Any]) -> Any:
        """The result for other leaves."""
        args, kwargs = self.pack(leaves)
        return self._run(*args, **kwargs)

    def pack(self, leaves: Sequence[Any]) -> Any:
        """(args, kwargs) of other leaves."""
        return nest.pack(self._structure, list(leaves))

    @property
    def tensors(self) -> list[Any]:
        """The leaves that have a value, or say what will."""
        return [leaf for leaf in self.leaves if is_tensor(leaf)]

    @property
    def shapes(self) -> list[Any]:
        """Of the tensors, as a signature says, or as they are."""
        if self._signature is None:
            return [tensor.shape for tensor in self.tensors]
        specs = nest.flatten(self._signature)
        return [spec.shape for spec in specs if isinstance(spec, TensorSpec)]

    def key(self) -> Any:
        """The same for calls that one plan may serve, if its shapes fit."""
        return nest.describe(self.pack(self.leaves), _key_of)


def _key_of(leaf: Any) -> Any:
    # What is made of variables is traced with these, and not with what stands for them.
    return id(leaf) if hasattr(leaf, "_with_variables") else _describe_leaf(leaf)


class Plan:
    """A function in the graph of a cluster, to be run by name in any session of this graph.

    feeds: names of the values that are given, in the order of Plan.values().
    fetches: names of the values that come back, for Plan.pack().
    targets: names of the nodes that must run for what they do.
    of_workers: what the function uses that each worker has of its own: variables that are called
        so (_per_worker_variable.py), and copies of others (_copies.py).
    steps, step: numbers of what ends the step that it contributes to, and the name of what is fed
        with the number of this; it is none of `feeds`.
    specs: TensorSpecs of the arguments that are tensors, in the order of their leaves.
    """

    def __init__(
        self, graph: ClusterGraph, call: Call, shapes: Sequence[Any] | None = None
    ) -> None:
        shapes = call.shapes if shapes is None else shapes
        self.graph = graph
        #: Alive as long as their numbers are keys.
        self._leaves = call.leaves
        trace, entered, found = self._traced(call, shapes, None)
        if trace.trained:
            copies = state.collector.of(trace.trained)
            trace, entered, found = self._traced(call, shapes, copies)
        self.places = [leaf for leaf, old in zip(entered, call.leaves) if is_tensor(old)]
        self._outside = [variable for variable, _ in trace.outside.values()]
        self.places += [place for _, place in trace.outside.values()]
        self.of_workers = list(trace.of_workers.values())
        self.nodes = list(trace.targets)
        self.steps = list(trace.steps)
        self.step = None if trace.step is None else trace.step.name
        self._present = [leaf is not None for leaf in found]
        self.specs = [
            TensorSpec(shape, leaf.dtype) for shape, leaf in zip(shapes, call.tensors)
        ]
        self.feeds = [place.name for place in self.places]
        self.fetches = [value.name for value in self.outputs]
        self.targets = [graph.native.node_name(node) for node in self.nodes]

    def _traced(
        self, call: Call, shapes: Sequence[Any], copies: dict[int, Any] | None
    ) -> tuple[Trace, list[Any], list[Any]]:
        """What the function does, and its arguments and results; `copies` stand for variables."""
        given = iter(shapes)
        with self.graph.tracing(call.name) as trace:
            trace.copies = copies
            entered = [
                self.graph.placeholder(leaf.dtype, next(given), "x") if is_tensor(leaf) else leaf
                for leaf in call.leaves
            ]
            self._result = call.run(entered)
            found = [_as_result(leaf, call.name) for leaf in _flatten_result(self._result)]
            self.outputs = [
                _made_here(self.graph, trace, leaf, entered) for leaf in found if leaf is not None
            ]
            if copies is not None:
                state.collector.end(trace)
        return trace, entered, found

    def accepts(self, tensors: Sequence[Any]) -> bool:
        """True when it is of these shapes."""
        return all(
            spec.shape is None or (tensor.shape is not None and spec.accepts(tensor))
            for spec, tensor in zip(self.specs, tensors)
        )

    def values(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """What is fed for these arguments: these, and the variables of this process that the
        function reads, as they are now."""
        return [*tensors, *self.values_outside()]

    def values_outside(self) -> list[Tensor]:
        """Of variables of this process that it reads."""
        return [variable._present() for variable in self._outside]

    def pack(self, tensors: Sequence[Any]) -> Any:
        """What was fetched in the structure of the function's result."""
        rest = iter(tensors)
        return _pack_result(self._result, [next(rest) if one else None for one in self._present])


def _made_here(graph: ClusterGraph, trace: Trace, value: Any, given: Sequence[Any]) -> Output:
    """A value as one that can be fetched: what is fed cannot."""
    value = graph.enter(value)
    places = [*given, *(place for _, place in trace.outside.values())]
    if any(type(place) is Output and place.node == value.node for place in places):
        value = graph.add("Identity", [value], None, None)
    return value


class Plans:
    """The plans of functions, by what they are called with."""

    def __init__(self, graph: ClusterGraph) -> None:
        self._graph = graph
        self._known: dict[int, tuple[Any, dict[Any, list[Plan]]]] = {}

    def find(
        self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Plan, list[Any]]:
        """The plan of a call, and its tensors. An extent that differs from call to call is left
        open in the second plan."""
        if isinstance(function, ClusterFunction):
            if function.plan.graph is not self._graph:
                raise errors.InvalidArgumentError(
                    f"{function.name}() was traced for another strategy than the one it is to run "
                    "with"
                )
            return function.plan, function._checked(args, kwargs)[0]
        call = Call(function, args, kwargs)
        return self.of(function, call), call.tensors

    def of(self, function: Any, call: Call) -> Plan:
        """The plan of a call of a function."""
        _, plans = self._known.setdefault(id(function), (function, {}))
        known = plans.setdefault(call.key(), [])
        for plan in known:
            if plan.accepts(call.tensors):
                return plan
        shapes = call.shapes
        if known:
            shapes = [_open(spec.shape, shape) for spec, shape in zip(known[-1].specs, shapes)]
        known.append(Plan(self._graph, call, shapes))
        return known[-1]


class ClusterFunction(ConcreteFunction):
    """One trace of a function that uses variables on parameter servers. Called in the coordinator,
    it runs as a step of the strategy's session."""

    def __init__(self, call: Call, plan: Plan, run: Callable[..., Any]) -> None:
        self.plan = plan
        self._call = call
        self._run_plan = run
        self.name = call.name
        self.shapes = [spec.shape for spec in plan.specs]
        given = iter(plan.specs)
        self.arguments = call.pack([
            next(given) if is_tensor(leaf) else leaf for leaf in call.leaves
        ])  # fmt: skip
        self._stand_ins = _variables_of(call.leaves)

    def _checked(self, args: Any, kwargs: Any) -> tuple[list[Any], list[Variable]]:
        values, variables = super()._checked(args, kwargs)
        if [id(variable) for variable in variables] != [id(one) for one in self._stand_ins]:
            raise errors.InvalidArgumentError(
                f"{self.name}() was traced for other variables on parameter servers than those it "
                "is given"
            )
        return values, variables

    def call(self, tensors: Sequence[Any], variables: Sequence[Variable] = ()) -> Any:
        """Runs it on the tensors among its arguments; in a function, as a part of that."""
        if state.graph is None:
            return self._run_plan(self.plan, self.plan.values(tensors))
        given = iter(tensors)
        return self._call.run([
            next(given) if is_tensor(leaf) else leaf for leaf in self._call.leaves
        ])  # fmt: skip

    @property
    def compute_dtype(self) -> str:
        return "float32"

    def graph_text(self) -> str:
        """The graph of the strategy, which it is a part of, one node a line."""
        return self.plan.graph.native.text()

    def program_text(self) -> str:
        raise errors.UnimplementedError(f"{self.name}() runs on a cluster: each task has a program")


def _open(known: Any, shape: Any) -> Any:
    if known is None or shape is None:
        return None
    return tuple(a if a == b else -1 for a, b in zip(known, shape))


