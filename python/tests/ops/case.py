"""What a conformance case says, and the checks that every case goes through (see test_ops.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import sidereal as sr
from sidereal import _dispatch
from sidereal._graphs import FuncGraph

Arrays = Sequence[np.ndarray]

#: Relative tolerance of values, by dtype.
RTOL = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 2e-2}


@dataclass
class Case:
    """One way to use an op.

    inputs: makes the inputs. Floating-point ones are given as float64 (or float32) and are cast to
        each of `dtypes`; others are taken as they are.
    attrs: attributes of the op.
    numpy: what the outputs are, from the inputs: an array, or a tuple of them. The inputs it gets
        are in the dtype under test, float16 and bfloat16 ones widened to float32.
    torch: the same from torch tensors, differentiable; None: no comparison with PyTorch.
    dtypes: dtypes to run floating-point inputs in. An empty list: inputs as they are, once.
    grad: indices of the inputs by which gradients are checked; inputs should stay away from kinks.
    grad_outputs: indices of the outputs that are differentiated; None: all floating-point ones.
    check: called with (inputs, outputs) instead of a comparison with `numpy`: for random ops.
    rtol, atol: tolerances of values; by default as the dtype allows.
    unknown: False: the op cannot be inferred with unknown extents (say why in a comment).
    exact: False: the graph may differ from eager in the last bits.
    """

    inputs: Callable[[np.random.Generator], Sequence[Any]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    numpy: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    dtypes: Sequence[str] = ("float32", "float64")
    grad: Sequence[int] = ()
    name: str = ""
    grad_outputs: Sequence[int] | None = None
    check: Callable[[Arrays, Arrays], None] | None = None
    rtol: float | None = None
    atol: float = 0.0
    grad_rtol: float = 2e-5
    unknown: bool = True
    exact: bool = True

    def make(self, dtype: str) -> list[np.ndarray]:
        """The inputs in `dtype` (bfloat16: rounded to it, as float32)."""
        rng = np.random.default_rng(20)
        made = [np.asarray(value) for value in self.inputs(rng)]
        if not dtype:
            return made
        return [
            value.astype(_storage(dtype)) if value.dtype.kind == "f" else value for value in made
        ]


def _storage(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def tensors(arrays: Arrays, dtype: str) -> list[sr.Tensor]:
    """The arrays as tensors of the dtype under test."""
    made = [sr.constant(array) for array in arrays]
    if dtype == "bfloat16":
        made = [sr.cast(x, "bfloat16") if x.dtype.kind == "f" else x for x in made]
    return made


def as_tuple(result: Any) -> tuple[Any, ...]:
    if result is None:
        return ()
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def widened(value: Any) -> np.ndarray:
    """As NumPy can compare it: halves as float32."""
    if isinstance(value, sr.Tensor):
        if value.dtype == sr.bfloat16:
            value = sr.cast(value, "float32")
        value = value.numpy()
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype == np.float16 else value


def bits(value: sr.Tensor) -> Any:
    if value.dtype == sr.string:
        return value.numpy().tolist()
    return (sr.cast(value, "float32") if value.dtype == sr.bfloat16 else value).numpy().tobytes()


def run_eager(op: str, case: Case, dtype: str) -> tuple[sr.Tensor, ...]:
    return as_tuple(_dispatch.apply(op, tensors(case.make(dtype), dtype), dict(case.attrs)))


def trace(
    op: str, case: Case, dtype: str, shape_of: Callable[[sr.Tensor], Any]
) -> tuple[FuncGraph, list[Any], list[Any], list[sr.Tensor]]:
    """The op alone in a graph whose inputs have the shapes `shape_of` says:
    (graph, inputs, outputs, values to feed)."""
    values = tensors(case.make(dtype), dtype)
    graph = FuncGraph("case")
    with graph.building():
        inputs = [graph.input(value.dtype, shape_of(value)) for value in values]
        outputs = list(as_tuple(_dispatch.apply(op, inputs, dict(case.attrs))))
    return graph, inputs, outputs, values


def run_graph(graph: FuncGraph, outputs: Sequence[Any], values: Sequence[Any]) -> list[sr.Tensor]:
    function = graph.native.function(graph.name, graph.inputs, outputs)
    return function.call(_dispatch.ENGINE, values)
