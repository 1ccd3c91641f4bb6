"""Functions run as graphs, for the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sidereal as sr
from sidereal import _dispatch, nest
from sidereal._graphs import FuncGraph


def _trace(function: Callable[..., Any], values: Sequence[Any], known: bool) -> Any:
    graph = FuncGraph("test")
    with graph.building():
        inputs = [
            graph.input(value.dtype, value.shape if known else [-1] * value.ndim)
            for value in values
        ]
        return graph, inputs, function(*inputs)


def _run(graph: FuncGraph, outputs: Sequence[Any], values: Sequence[Any]) -> list[sr.Tensor]:
    with graph.building():
        entered = [graph.enter(output) for output in outputs]
    captured = [
        value if type(value) is sr.Tensor else value._as_tensor() for value, _ in graph.captures
    ]
    function = graph.native.function(graph.name, graph.inputs, entered)
    return function.call(_dispatch.ENGINE, [*values, *captured])


def in_graph(
    function: Callable[..., Any], values: Sequence[Any], known: bool = True
) -> list[sr.Tensor]:
    """The leaves of what the function returns, traced with inputs of the shapes of `values`, or
    with unknown extents, and run."""
    graph, _, result = _trace(function, values, known)
    return _run(graph, nest.flatten(result), values)


def gradients_of(
    function: Callable[..., Any], values: Sequence[Any], known: bool = True
) -> list[Any]:
    """Gradients of the sum of what the function gives, made in the graph; zeros where none flow."""
    graph, inputs, result = _trace(function, values, known)
    with graph.building():
        grads = sr.gradients(result, inputs)
        grads = [sr.ops.basic.zeros_like(x) if g is None else g for g, x in zip(grads, inputs)]
    return [grad.numpy() for grad in _run(graph, grads, values)]
