"""Where an op goes: run at once, or added to the graph that is being built.

    apply("MatMul", (x, w), {"transpose_b": True})

runs the op when all inputs have values. It adds a node when one of them is symbolic, or while a
function is being traced. The names of ops, their inputs and attributes are those of the schemas of
the core (`sidereal ops` lists them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import dtypes, errors
from ._engine import ENGINE, state
from ._graphs import graph_of
from ._native import Output, Tensor
from ._sites import add_line
from ._values import NUMBERS, checked_dtype, to_tensor

_execute = ENGINE.execute
_number_like = ENGINE.number_like


def apply(
    op: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Any:
    """A Tensor or Output, a tuple of them when the op has several, or None when it has none.

    Inputs that are neither are converted with convert(). Attributes that are None are left out.
    Errors are those of sidereal.errors; they name the op, the shapes of its inputs and the line of
    the program.
    """
    try:
        if state.graph is None:
            for value in inputs:
                if type(value) is not Tensor:
                    break
            else:
                return _execute(op, inputs, attrs, name)
            symbol = next((value for value in inputs if type(value) is Output), None)
            if symbol is None:
                inputs = [convert(value) for value in inputs]
                # Variables of graphs have become values of them.
                symbol = next((value for value in inputs if type(value) is Output), None)
            if symbol is None:
                return _execute(op, inputs, attrs, name)
            graph = graph_of(symbol)
        else:
            graph = state.graph
        return graph.add(op, [graph.enter(value) for value in inputs], attrs, name)
    except errors.Error as error:
        add_line(error)
        raise


def binary(op: str, x: Any, y: Any, name: str | None = None) -> Any:
    """apply() of an op of two inputs of one dtype; see align()."""
    if type(x) is Tensor and type(y) in NUMBERS:
        number = _number_like(y, x)
        y = y if number is None else number
    elif type(y) is Tensor and type(x) in NUMBERS:
        number = _number_like(x, y)
        x = x if number is None else number
    if type(x) is not Tensor or type(y) is not Tensor:
        x, y = align(x, y)
    return apply(op, (x, y), None, name=name)


def align(*values: Any) -> list[Any]:
    """Converts values that are to have one dtype, that of the first tensor among them. Python
    numbers, lists and NumPy arrays take it where they can (not a fraction as an integer); tensors
    keep theirs. Without a tensor, the first array's dtype, or what NumPy would make of the numbers
    (float32 for fractions, int32 for integers)."""
    dtype = None
    for value in values:
        if _is_tensor(value):
            dtype = value.dtype
            break
    if dtype is None:
        for value in values:
            if isinstance(value, (np.ndarray, np.generic)):
                dtype = value.dtype
                break
    if dtype is None and any(type(value) is float for value in values):
        dtype = dtypes.float32
    if state.graph is None:
        symbol = next((value for value in values if type(value) is Output), None)
        if symbol is not None:
            graph = graph_of(symbol)
            return [
                graph.enter(value) if _is_tensor(value) else graph.constant(to_tensor(value, dtype))
                for value in values
            ]
    return [convert(value) if _is_tensor(value) else convert(value, dtype) for value in values]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, Output)) or hasattr(value, "_as_tensor")


def convert(value: Any, dtype: Any = None) -> Any:
    """`value` as a tensor: a Tensor, or a value of the graph being built.

    Takes tensors, variables, Python numbers and nested lists of them (float32, int32 or bool unless
    `dtype` says otherwise; integers beyond int32 are int64), NumPy arrays and scalars (which keep
    their dtype), and arrays of other libraries that have __dlpack__. Data are copied, except those
    of other libraries. A tensor of another dtype than `dtype` is an error: cast it.
    """
    if isinstance(value, (Tensor, Output)):
        return checked_dtype(value, dtype)
    as_tensor = getattr(value, "_as_tensor", None)
    if as_tensor is not None:
        return convert(as_tensor(), dtype)
    if isinstance(value, (list, tuple)) and _has_tensor(value):
        return _stack(value, dtype)
    tensor = to_tensor(value, dtype)
    return tensor if state.graph is None else state.graph.constant(tensor)


def _has_tensor(values: Sequence[Any]) -> bool:
    return any(
        _is_tensor(value)
        or (isinstance(value, (list, tuple)) and _has_tensor(value))
        for value in values
    )


def _stack(values: Sequence[Any], dtype: Any) -> Any:
    parts = align(*values) if dtype is None else [convert(value, dtype) for value in values]
    return apply("Stack", parts, {"axis": 0})


__all__ = ["ENGINE", "align", "apply", "binary", "convert", "state", "to_tensor"]
