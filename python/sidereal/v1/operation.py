"""Nodes of graphs as Python sees them (tf.Operation). Importing this module puts `op`, `eval` and
`consumers` on values of graphs."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import _native
from .._native import Output
from .default_session import need_session

if TYPE_CHECKING:
    from .graph import Graph


class Operation:
    """A node of a graph (tf.Operation): something to run. It runs when it is fetched, or before
    what is made under control_dependencies() of it."""

    __slots__ = ("graph", "native", "node")

    def __init__(self, graph: Graph, node: int, native: _native.GraphBase | None = None) -> None:
        self.graph = graph
        #: What the node is in: the graph, or a body of a branch or loop inside of it.
        self.native = graph.native if native is None else native
        #: Number of the node.
        self.node = node

    @property
    def name(self) -> str:
        """Unique in the graph."""
        return self.native.node_name(self.node)

    @property
    def type(self) -> str:
        """Name of the op."""
        return self.native.node_op(self.node)

    @property
    def device(self) -> str:
        """The device that was asked for, "" for any."""
        return self.native.node_device(self.node)

    @property
    def inputs(self) -> list[Output]:
        """Values that it reads."""
        return self.native.node_inputs(self.node)

    @property
    def control_inputs(self) -> list[Operation]:
        """Operations that run before it."""
        return [
            Operation(self.graph, node, self.native)
            for node in self.native.node_controls(self.node)
        ]

    @property
    def outputs(self) -> list[Output]:
        """Values that it makes."""
        return self.native.node_outputs(self.node)

    def values(self) -> tuple[Output, ...]:
        """As outputs, in a tuple."""
        return tuple(self.outputs)

    def get_attr(self, name: str) -> Any:
        """An attribute; ValueError when it has none of that name."""
        attrs = _native.attrs_of(self.native, self.node)
        if name not in attrs:
            raise ValueError(f"operation '{self.name}' has no attribute '{name}'")
        return attrs[name]

    def colocation_groups(self) -> list[bytes]:
        """With whom it is to run: b"loc:@name" for each, its own name when there is nobody."""
        groups = _native.attrs_of(self.native, self.node).get("_class")
        return [group.encode() for group in groups or [f"loc:@{self.name}"]]

    def _colocated_with(self) -> list[str]:
        """Their names, its own when there is nobody."""
        return [group.decode().removeprefix("loc:@") for group in self.colocation_groups()]

    @property
    def node_def(self) -> Any:
        """name, op, input (names), device and attr (a dict), as in a tf.NodeDef."""
        inputs = [value.node_name + (f":{value.index}" if value.index else "")
                  for value in self.inputs]  # fmt: skip
        inputs += ["^" + control.name for control in self.control_inputs]
        return types.SimpleNamespace(
            name=self.name, op=self.type, input=inputs, device=self.device,
            attr=_native.attrs_of(self.native, self.node),
        )  # fmt: skip

    def _set_device(self, device: Any) -> None:
        self.native.set_device(self.node, self.graph.device_text(device))

    def run(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> None:
        """Runs it in `session`, or in the default session."""
        (session or need_session()).run(self, feed_dict)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operation):
            return NotImplemented
        return self.native is other.native and self.node == other.node

    def __hash__(self) -> int:
        return hash((id(self.native), self.node))

    def __repr__(self) -> str:
        return f"<Operation '{self.name}' type={self.type}>"


def owner_of(value: Output) -> Any:
    """The sidereal.v1.Graph that a value belongs to."""
    owner = getattr(value.graph, "owner", None)
    if owner is None:
        raise AttributeError(
            "only values of sidereal.v1 graphs have an Operation; op_type is the name of the op"
        )
    return owner


def _operation(self: Output) -> Operation:
    """The Operation that makes it."""
    return Operation(owner_of(self), self.node)


def _eval(self: Output, feed_dict: Any = None, session: Any = None) -> Any:
    """What it is in a run of `session`, by default of the default one (tf.Tensor.eval)."""
    return (session or need_session()).run(self, feed_dict)


def _consumers(self: Output) -> list[Operation]:
    """The Operations that read it."""

    def reads(op: Operation) -> bool:
        return any(x.node == self.node and x.index == self.index for x in op.inputs)

    return [op for op in owner_of(self).get_operations() if reads(op)]


_METHODS: dict[str, Any] = {
    "op": property(_operation), "eval": _eval, "consumers": _consumers,
}  # fmt: skip
for _name, _method in _METHODS.items():
    setattr(Output, _name, _method)
