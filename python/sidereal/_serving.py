"""A model of a cluster as a function of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from . import _native, ops
from ._dispatch import ENGINE
from ._graphs import FuncGraph
from ._native import Output
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


class Lookup(NamedTuple):
    """Rows of a table that a model takes in the place of ids."""

    #: The name of the input that has them.
    input: str
    table: str
    #: The column with their ids; "" for ids that the model computes.
    ids: str


@dataclass
class Inference:
    """What a model predicts, as a graph that gets the values of variables as inputs."""

    native: _native.GraphBase
    features: list[tuple[str, Output]]
    variables: list[tuple[str, Output]]
    #: "probability" or "prediction".
    result: str
    output: Output
    #: Rows among the features; none in a graph that takes ids.
    lookups: list[Lookup] = field(default_factory=list)

    def function(self, read: Callable[[str], Any]) -> ConcreteFunction:
        """A function of the features; `read` gives the values of variables."""
        graph = FuncGraph("predict", native=cast(_native.Graph, self.native))
        graph.outer = None
        graph.arguments = [value for _, value in self.features]
        graph.captures = [
            (Variable(read(name), name=name), inside) for name, inside in self.variables
        ]
        specs = tuple(
            TensorSpec(value.shape, as_dtype(value.dtype), name) for name, value in self.features
        )
        return ConcreteFunction.restore(
            graph, (specs, {}), {self.result: self.output}, [self.output], []
        )


class _Rebuilder:
    """Adds the nodes of a compiled model to the graph of a function."""

    def __init__(self, compiled: _native.CompiledModel, takes_rows: bool) -> None:
        self._compiled = compiled
        self._takes_rows = takes_rows
        self._nodes = _native.nodes_of(compiled)
        self._features: list[tuple[str, Output]] = []
        self._variables: dict[str, Output] = {}
        self._rows: dict[Any, Output] = {}
        self._lookups: list[Lookup] = []
        self.graph = FuncGraph("predict")
        self.graph.outer = None

    def _feature(self, name: str, dtype: Any, shape: Any) -> Output:
        made = self.graph.input(dtype, shape, name)
        self._features.append((name, made))
        return made

    def _rows_given(self, node: Any) -> Output:
        """An input for what a look-up gives; look-ups of equal ids in one table are one."""
        (ids, table), (dtype, shape) = node[2], node[4][0]
        if (ids, table) not in self._rows:
            by, of = self._nodes[ids[0]], self._nodes[table[0]][0]
            taken = {name for name, _ in self._features}
            name, number = of, 1
            while name in taken:
                name, number = f"{of}_{number}", number + 1
            self._rows[ids, table] = self._feature(name, dtype, shape)
            self._lookups.append(Lookup(name, of, by[0] if by[1] == "Placeholder" else ""))
        return self._rows[ids, table]

    def _add(self, node: Any, inputs: list[Any]) -> Any:
        name, op, _, attrs, _ = node
        graph = self.graph
        if op == "Placeholder":
            return self._feature(name, attrs["dtype"], attrs["shape"])
        if op == "Variable":
            if name not in self._variables:
                dtype, shape = self._specs[name]
                self._variables[name] = graph.input(dtype, shape, name)
            return self._variables[name]
        if op == "VariableRead":
            return inputs[0]
        if op == "EmbeddingLookup":
            with graph.building():
                return _rows_of(inputs[1], inputs[0])
        if op == "Dropout":
            return inputs[0]
        schema = ENGINE.schema(op)
        functions = [attr for attr, kind, _, _ in schema["attrs"] if kind == "function"]
        if functions:
            bodies = {attr: _native.body_of(self._compiled, attrs[attr]) for attr in functions}
            rest = {key: value for key, value in attrs.items() if key not in functions}
            return _native.add_control(graph.native, op, inputs, bodies, rest, name, "")
        return graph.native.add(op, inputs, attrs, name)

    def build(self) -> Inference:
        """The graph of what the model predicts."""
        nodes = self._nodes
        self._specs = {n: (as_dtype(d), tuple(s)) for n, d, s in self._compiled.variables}
        places = {node[0]: i for i, node in enumerate(nodes)}
        name, _, index = self._compiled.prediction.partition(":")
        output = (places[name], int(index or 0))
        given = [self._takes_rows and node[1] == "EmbeddingLookup" for node in nodes]
        needed = needed_for(
            [(*node[:2], [] if there else node[2]) for node, there in zip(nodes, given)], [output]
        )
        values: dict[tuple[int, int], Any] = {}
        for i, node in enumerate(nodes):
            if not needed[i]:
                continue
            if given[i]:
                values[i, 0] = self._rows_given(node)
                continue
            made = self._add(node, [values[at] for at in node[2]])
            for k, value in enumerate(made if isinstance(made, (list, tuple)) else [made]):
                values[i, k] = value
        what = "probability" if self._compiled.is_binary else "prediction"
        return Inference(
            self.graph.native, self._features, list(self._variables.items()), what,
            values[output], self._lookups,
        )  # fmt: skip


def inference_of(compiled: _native.CompiledModel, takes_rows: bool = False) -> Inference:
    """What a model predicts. takes_rows: its inputs are rows of tables in the place of ids."""
    return _Rebuilder(compiled, takes_rows).build()


def inference_function(
    compiled: _native.CompiledModel, read: Callable[[str], np.ndarray]
) -> ConcreteFunction:
    """What a model predicts, as a function of its inputs; `read` gives the values of variables."""
    return inference_of(compiled).function(read)
