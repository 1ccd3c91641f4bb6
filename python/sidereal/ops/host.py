"""Python functions as ops: py_function and numpy_function."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes, errors, nest
from .._dispatch import ENGINE, apply, convert, state, to_tensor
from .._graphs import graph_of, legal_name
from .._native import Output, Tensor
from ..gradients import GradientTape

__all__ = ["numpy_function", "py_function"]

_Function = Callable[[list[Tensor]], Sequence[Tensor]]

#: Functions that graphs call by number, kept by these graphs.
_functions: weakref.WeakValueDictionary[int, _Function] = weakref.WeakValueDictionary()
_numbers = itertools.count(secrets.randbits(61))  # Others in each process.


def _register(function: _Function) -> int:
    number = next(_numbers)
    _functions[number] = function
    return number


def call_registered(number: int, inputs: list[Tensor]) -> Sequence[Tensor]:
    function = _functions.get(number)
    if function is None:
        raise errors.NotFoundError(
            f"there is no Python function {number} in this process: a py_function runs in the "
            "process that made it, and on servers there; a graph with it cannot be saved"
        )
    before, state.graph = state.graph, None
    try:
        return function(inputs)
    finally:
        state.graph = before


ENGINE.set_host_functions(call_registered)


def _results(values: Any, types: Sequence[Any], what: str) -> list[Tensor]:
    """What a function gave as tensors of the dtypes it was declared with."""
    if len(types) == 0:
        return []
    given = list(values) if isinstance(values, (list, tuple)) else [values]
    if len(given) != len(types):
        raise errors.InvalidArgumentError(
            f"{what} gave {len(given)} values where Tout has {len(types)}"
        )
    return [to_tensor(value, dtype) for value, dtype in zip(given, types)]


def _in_graph(inputs: Sequence[Any]) -> bool:
    return state.graph is not None or any(type(value) is Output for value in inputs)


def py_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, name: str | None = None
) -> Any:
    """func(*inp) as an op: Python code in the middle of a graph, on tensors that have values.

    Tout: dtype of what `func` gives, or a list of them (an empty one: nothing). What `func` does
    with tensors is differentiated: in a graph it runs once more for its gradient. It runs in the
    process that made it only, also on servers there; a graph with it cannot be saved. What it
    raises is raised where the graph is run. TensorFlow: tf.py_function."""
    types = [dtypes.as_dtype(dtype) for dtype in (nest.flatten(Tout))]
    single = not isinstance(Tout, (list, tuple))
    what = getattr(func, "__name__", "the function")
    count = len(inp)

    def forward(inputs: Sequence[Tensor]) -> list[Tensor]:
        return _results(func(*inputs), types, what)

    def backward(given: list[Tensor]) -> list[Tensor]:
        inputs, dys = given[:count], given[count:]
        by = [x for x in inputs if dtypes.is_floating(x.dtype)]
        with GradientTape() as tape:
            tape.watch(by)
            outputs = forward(inputs)
        ys = [y for y in outputs if dtypes.is_floating(y.dtype)]
        grads = tape.gradient(ys, by, output_gradients=dys, unconnected_gradients="zero")
        return [convert(grad) for grad in grads]

    if not _in_graph(inp):
        outputs: Any = forward([convert(value) for value in inp])
    else:
        outputs = _add(forward, backward, inp, types, name or legal_name(what))
    return outputs[0] if single else outputs


def numpy_function(
    func: Callable[..., Any], inp: Sequence[Any], Tout: Any, stateful: bool = True,
    name: str | None = None,
) -> Any:
    """As py_function(), for a function of NumPy arrays. No gradient flows through it. `stateful`
    is there for TensorFlow's sake: it always runs. TensorFlow: tf.numpy_function."""
    types = [dtypes.as_dtype(dtype) for dtype in (nest.flatten(Tout))]
    single = not isinstance(Tout, (list, tuple))
    what = getattr(func, "__name__", "the function")

    def forward(inputs: Sequence[Tensor]) -> list[Tensor]:
        values = func(*(x.numpy().copy() for x in inputs))
        given = list(values) if isinstance(values, (list, tuple)) else [values]
        return _results([np.asarray(value) for value in given], types, what)

    if not _in_graph(inp):
        outputs: Any = forward([convert(value) for value in inp])
    else:
        outputs = _add(forward, None, inp, types, name or legal_name(what))
    return outputs[0] if single else outputs


def _add(
    forward: _Function, backward: _Function | None, inputs: Sequence[Any], types: Sequence[Any],
    name: str,
) -> Any:
    attrs: dict[str, Any] = {
        "function": _register(forward),
        "dtypes": [dtypes.name_of(dtype) for dtype in types],
    }
    functions = [forward]
    if backward is not None:
        attrs["gradient"] = _register(backward)
        functions.append(backward)
    graph = state.graph or graph_of(next(value for value in inputs if type(value) is Output))
    graph.keep(functions)
    made = apply("HostFunction", tuple(inputs), attrs, name=name)
    if made is None:
        return []
    if len(types) == 0:
        return made
    return list(made) if isinstance(made, tuple) else [made]
