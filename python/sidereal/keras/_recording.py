"""Symbolic tensors of models: what is done with them is recorded, to be done again with values.

A symbolic tensor is an Output of a Recording. Ops called on it come to its add(), layers to
record(); each makes a Node. Every Input begins a recording of its own; where values of several
meet, the recording of one of them shows the others as aliases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import errors, nest
from .._conversion import converting
from .._dispatch import apply, convert, state
from .._graphs import FuncGraph, legal_name
from .._native import GraphBase, Output, Tensor
from .._sites import user_line
from ..function import TensorSpec
from ._configs import own_name

_numbers = itertools.count()

#: What tells one symbolic tensor from another.
Key = tuple[int, int, int]


class Node:
    """Something that was done: `operation` called with `arguments` (args, kwargs) gave `outputs`,
    the tensors among the leaves of `structure`."""

    def __init__(self, operation: Any, arguments: tuple[Any, Any], structure: Any) -> None:
        self.operation = operation
        self.arguments = arguments
        self.structure = structure
        #: Nodes are made after those they depend on.
        self.number = next(_numbers)
        self.inputs = [leaf for leaf in nest.flatten(arguments) if is_symbolic(leaf)]
        self.outputs = [leaf for leaf in nest.flatten(structure) if is_symbolic(leaf)]

    def run(self, values: Mapping[Key, Any]) -> list[Any]:
        """The values of `outputs`, those of inputs being known."""
        leaves = [
            values[key_of(leaf)] if is_symbolic(leaf) else leaf
            for leaf in nest.flatten(self.arguments)
        ]
        args, kwargs = nest.pack(self.arguments, leaves)
        made = nest.flatten(self.operation(*args, **kwargs))
        wanted = nest.flatten(self.structure)
        return [value for value, leaf in zip(made, wanted) if is_symbolic(leaf)]


class Operation:
    """An op that was called on symbolic tensors, as a function of its inputs."""

    def __init__(self, op: str, attrs: Mapping[str, Any] | None) -> None:
        self.op, self.attrs = op, attrs
        self.name = own_name(self, op)

    def __call__(self, *inputs: Any) -> Any:
        return apply(self.op, inputs, self.attrs)


class Reading:
    """A constant or variable that ops on symbolic tensors took from outside."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.name = getattr(value, "name", "constant")

    def __call__(self) -> Any:
        return convert(self.value)


class Recording(FuncGraph):
    """What is done with the symbolic tensors of one Input."""

    is_sketch = True

    def __init__(self) -> None:
        with state.at_once():
            super().__init__("model")
        self.outer = None
        setattr(self.native, "owner", self)
        self._origins: dict[tuple[int, int], tuple[Node, int]] = {}
        self._aliases: dict[tuple[int, int], Output] = {}

    def add(
        self, op: str, inputs: Sequence[Output], attrs: Mapping[str, Any] | None, name: str | None
    ) -> Any:
        """An op on symbolic tensors."""
        node_name = None if name is None else legal_name(name)
        made = self.native.add(op, inputs, attrs, node_name, user_line(), [])
        if made is None:
            raise errors.UnimplementedError(
                f"{op} on symbolic tensors of a model has no result, so that it would not be part "
                "of it; call it in the call() of a layer"
            )
        self._note(Node(Operation(op, attrs), (tuple(inputs), {}), made))
        return made

    def constant(self, value: Tensor) -> Output:
        return self._read(value)

    def capture(self, value: Tensor | Output) -> Output:
        if type(value) is Tensor:
            return self._read(value)
        if not isinstance(value, Output) or not is_symbolic(value):
            return super().capture(value)
        key = key_of(value)
        if key not in self._captured:
            made = self.native.placeholder("other", value.dtype, value.shape)
            self._captured[key] = made
            self._aliases[made.node, made.index] = value
        return self._captured[key]

    def read_variable(self, variable: Any) -> Output:
        known = self._variables.get(id(variable))
        if known is None:
            known = self._variables[id(variable)] = (variable, self._read(variable))
        return known[1]

    def _read(self, value: Any) -> Output:
        made = self.native.placeholder("value", value.dtype, value.shape)
        self._note(Node(Reading(value), ((), {}), made))
        return made

    def assign_variable(self, variable: Any, value: Output) -> None:
        raise errors.UnimplementedError(
            f"variable '{variable.name}' cannot be assigned to by symbolic tensors of a model; do "
            "it in the call() of a layer"
        )

    def place_nodes(self, native: GraphBase, first: int) -> None:
        """Told of control flow and gradients, which are no single ops."""
        raise errors.UnimplementedError(
            "control flow and gradients on symbolic tensors of a model cannot be recorded; write a "
            "layer whose call() has them, or a Lambda"
        )

    def keep(self, things: Sequence[object]) -> None:
        self.place_nodes(self.native, 0)

    def _note(self, node: Node) -> None:
        for place, made in enumerate(node.outputs):
            self._origins[made.node, made.index] = node, place

    def record(self, operation: Any, arguments: tuple[Any, Any], result: Any) -> Node:
        """Notes the call of a layer that gives values as `result` says, a TensorSpec or None for
        each."""
        name = legal_name(operation.name)
        made = [
            None if spec is None else self.native.placeholder(name, spec.dtype, spec.shape)
            for spec in nest.flatten(result)
        ]
        node = Node(operation, arguments, nest.pack(result, made))
        self._note(node)
        return node

    def origin(self, value: Output) -> tuple[Node, int]:
        """The node that a value of this recording is an output of, and which one."""
        found = self._origins.get((value.node, value.index))
        if found is None:
            raise errors.InvalidArgumentError(
                f"{value!r} is no result of layers and ops on symbolic tensors; a model is made of "
                "what begins with keras.Input()"
            )
        return found

    def behind(self, value: Output) -> Output:
        """The value of another recording that `value` shows, or itself."""
        return self._aliases.get((value.node, value.index), value)


def is_symbolic(value: Any) -> bool:
    """True for symbolic tensors of models."""
    return type(value) is Output and isinstance(getattr(value.graph, "owner", None), Recording)


def has_symbolic(structure: Any) -> bool:
    """True if a symbolic tensor is among the leaves."""
    return any(is_symbolic(leaf) for leaf in nest.flatten(structure))


def recording_of(value: Output) -> Recording:
    """The recording that a symbolic tensor belongs to."""
    owner: Recording = value.graph.owner  # type: ignore[attr-defined]
    return owner


def key_of(value: Output) -> Key:
    """What a symbolic tensor is known by, in whatever recording it is shown."""
    shown = recording_of(value).behind(value)
    while shown is not value:
        value, shown = shown, recording_of(shown).behind(shown)
    return id(value.graph), value.node, value.index


def origin_of(value: Output) -> tuple[Node, int]:
    """The node that a symbolic tensor is an output of, and which one of them."""
    shown = recording_of(value).behind(value)
    return recording_of(value).origin(value) if shown is value else origin_of(shown)


class _Trial(FuncGraph):
    """A graph of which nothing is computed."""

    is_sketch = True


def trial(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A TensorSpec for each tensor that a function gives for tensors like the symbolic ones and the
    TensorSpecs among its arguments; nothing is computed."""
    with state.at_once():
        graph = _Trial("trial")
    with graph.building():
        leaves = [
            graph.input(leaf.dtype, leaf.shape)
            if is_symbolic(leaf) or isinstance(leaf, TensorSpec)
            else leaf
            for leaf in nest.flatten((args, kwargs))
        ]
        args, kwargs = nest.pack((args, kwargs), leaves)
        result = converting(function)(*args, **kwargs)
        made = [
            None if leaf is None else graph.enter(convert(leaf)) for leaf in nest.flatten(result)
        ]
    specs = [None if leaf is None else TensorSpec(leaf.shape, leaf.dtype) for leaf in made]
    return nest.pack(result, specs)
