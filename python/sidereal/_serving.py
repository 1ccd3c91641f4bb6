"""A model of a cluster as a function of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import _native, ops
from ._dispatch import ENGINE
from ._graphs import FuncGraph
from .dtypes import as_dtype
from .function import ConcreteFunction, TensorSpec
from .variable import Variable


def needed_for(nodes: list[Any], outputs: Iterable[tuple[int, int]]) -> list[bool]:
    """By node (as _native.nodes_of() gives them): whether one of `outputs` depends on it."""
    needed = [False] * len(nodes)
    for node, _ in outputs:
        needed[node] = True
    for i in range(len(nodes) - 1, -1, -1):
        if needed[i]:
            for node, _ in nodes[i][2]:
                needed[node] = True
    return needed


def _rows_of(table: Any, ids: Any) -> Any:
    """Rows by id; a negative id gives zeros, as in look-ups on a cluster."""
    there = ops.array.expand_dims(ops.math.greater_equal(ids, 0), -1)
    rows = ops.array.gather(table, ops.math.maximum(ids, 0))
    return ops.math.where(there, rows, ops.array.zeros_like(rows))


class _Rebuilder:
    """Adds the nodes of a compiled model to the graph of a function."""

    def __init__(self, compiled: _native.CompiledModel, read: Callable[[str], np.ndarray]) -> None:
        self._compiled = compiled
        self._read = read
        self._variables: dict[str, Variable] = {}
        self.graph = FuncGraph("predict")
        self.graph.outer = None

    def _variable(self, name: str) -> Variable:
        if name not in self._variables:
            self._variables[name] = Variable(self._read(name), name=name)
        return self._variables[name]

    def _add(self, name: str, op: str, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        graph = self.graph
        if op == "Placeholder":
            return graph.input(attrs["dtype"], attrs["shape"], name)
        if op == "Variable":
            return self._variable(name)
        if op == "VariableRead":
            return graph.read_variable(inputs[0])
        if op == "EmbeddingLookup":
            with graph.building():
                return _rows_of(graph.read_variable(inputs[1]), inputs[0])
        if op == "Dropout":
            return inputs[0]
        schema = ENGINE.schema(op)
        functions = [attr for attr, kind, _, _ in schema["attrs"] if kind == "function"]
        if functions:
            bodies = {attr: _native.body_of(self._compiled, attrs[attr]) for attr in functions}
            rest = {key: value for key, value in attrs.items() if key not in functions}
            return _native.add_control(graph.native, op, inputs, bodies, rest, name, "")
        return graph.native.add(op, inputs, attrs, name)

    def build(self) -> ConcreteFunction:
        """The function of what the model predicts."""
        nodes = _native.nodes_of(self._compiled)
        places = {node[0]: i for i, node in enumerate(nodes)}
        name, _, index = self._compiled.prediction.partition(":")
        outputs = [(places[name], int(index or 0))]
        needed = needed_for(nodes, outputs)
        values: dict[tuple[int, int], Any] = {}
        for i, (node_name, op, inputs, attrs, _) in enumerate(nodes):
            if not needed[i]:
                continue
            made = self._add(node_name, op, [values[at] for at in inputs], attrs)
            for k, value in enumerate(made if isinstance(made, (list, tuple)) else [made]):
                values[i, k] = value
        what = "probability" if self._compiled.is_binary else "prediction"
        result = {what: values[outputs[0]]}
        specs = [
            TensorSpec(value.shape, as_dtype(value.dtype), value.node_name)
            for value in self.graph.arguments
        ]
        return ConcreteFunction.restore(
            self.graph, (tuple(specs), {}), result, list(result.values()), []
        )


def inference_function(
    compiled: _native.CompiledModel, read: Callable[[str], np.ndarray]
) -> ConcreteFunction:
    """What a model predicts, as a function of its inputs; `read` gives the values of variables."""
    return _Rebuilder(compiled, read).build()
