"""Gradients: GradientTape for what runs at once, gradients() for graphs, custom_gradient."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import _native, errors, nest
from ._bodies import Body, add_control
from ._dispatch import ENGINE, apply, convert, state, to_tensor
from ._graphs import FuncGraph, Graph, graph_of
from ._native import Output, Tensor
from ._sites import add_line
from .dtypes import is_floating
from .indexed_slices import IndexedSlices, from_rows


class GradientTape:
    """Records what is computed of watched values, to be differentiated (tf.GradientTape).

        x = sidereal.constant(3.0)
        with sidereal.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        tape.gradient(y, x)  # 6.0

    Trainable variables are watched when they are read, unless `watch_accessed_variables` is False.
    A tape gives gradients once, a persistent one as often as asked. Tapes nest: gradients computed
    inside of another tape are recorded there, so that second derivatives can be taken. A tape
    listens to the thread that entered it. Inside of a function being traced, gradients become part
    of its graph.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent = persistent
        self._watch_variables = watch_accessed_variables
        self._tape = _native.Tape(ENGINE)
        self._graph: Graph | None = None
        self._recording = False
        self._used = False
        self._watched: dict[int, tuple[Any, list[Any]]] = {}
        self._kept: set[object] = set()

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise errors.FailedPreconditionError("the tape is recording already")
        self._graph = state.graph
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._recording:
            self._stop()

    def _start(self) -> None:
        self._recording = True
        state.tapes = (*state.tapes, self)
        if self._graph is None:
            self._tape.start()

    def _stop(self) -> None:
        self._recording = False
        state.tapes = tuple(tape for tape in state.tapes if tape is not self)
        self._tape.stop()

    def watch(self, tensor: Any) -> None:
        """From now on, what is made of the tensor (or tensors, or variables) is recorded."""
        for value in nest.flatten(tensor):
            if hasattr(value, "_with_variables"):
                self.watch(value.variables)
                continue
            if hasattr(value, "_as_tensor"):
                self._read(value, value._as_tensor(), watch=True)
                continue
            if not isinstance(value, (Tensor, Output)):
                raise TypeError(f"watch() takes tensors and variables, not {type(value).__name__}")
            if not is_floating(value.dtype):
                raise errors.InvalidArgumentError(
                    f"{value!r} cannot be watched: gradients are taken by floating-point values"
                )
            if isinstance(value, Tensor):
                self._tape.watch(value)

    def _read(self, variable: Any, value: Any, watch: bool = False) -> None:
        """Called by variables when they are read."""
        if not watch and not (self._watch_variables and variable.trainable):
            return
        _, values = self._watched.setdefault(id(variable), (variable, []))
        if not any(known is value for known in values):
            values.append(value)
            if isinstance(value, Tensor):
                self._tape.watch(value)

    def _keep(self, things: Sequence[object]) -> None:
        """What functions that are recorded refer to (Graph.kept), for their gradients."""
        self._kept.update(things)

    def watched_variables(self) -> tuple[Any, ...]:
        """The variables read so far, in the order of their first use."""
        return tuple(variable for variable, _ in self._watched.values())

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """What is computed in this context is not recorded."""
        if not self._recording:
            raise errors.FailedPreconditionError("the tape is not recording")
        if self._graph is not None:
            raise errors.UnimplementedError(
                "stop_recording() inside of a function: use sidereal.stop_gradient()"
            )
        self._stop()
        try:
            yield
        finally:
            self._start()

    def reset(self) -> None:
        """Forgets everything recorded and watched."""
        self._tape.clear()
        self._watched.clear()
        self._kept.clear()
        self._used = False

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """Gradients of the sum of `target` (a tensor or nested tensors) by `sources`, in the
        structure of the sources: tensors; IndexedSlices for values of which rows were gathered;
        None (or zeros, with unconnected_gradients="zero") where the target does not depend on the
        source. `output_gradients` are weights, in the structure of the target.

        Errors: UnimplementedError naming an op without gradient on the way.
        """
        self._use()
        try:
            seeds = None
            if output_gradients is not None:
                nested = isinstance(target, (list, tuple, dict))
                seeds = nest.flatten(output_gradients) if nested else [output_gradients]
            found = self._gradient(nest.flatten(target), nest.flatten(sources), seeds)
        except errors.Error as error:
            _add_recorded_line(error)
            raise
        finally:
            if not self._persistent:
                self._tape.clear()
        return nest.pack(sources, _connect(found, nest.flatten(sources), unconnected_gradients))

    def _use(self) -> None:
        if self._persistent:
            return
        if self._used:
            raise errors.FailedPreconditionError(
                "this GradientTape has given its gradients; make it persistent=True to ask it again"
            )
        self._used = True
        if self._recording:
            self._stop()

    def _gradient(
        self, targets: list[Any], sources: list[Any], seeds: list[Any] | None
    ) -> list[Any]:
        if seeds is None:
            seeds = [None] * len(targets)
        if len(seeds) != len(targets):
            raise errors.InvalidArgumentError(
                f"{len(seeds)} output_gradients are given for {len(targets)} targets"
            )
        values = [self._values_of(source) for source in sources]
        flat = [value for group in values for value in group]
        if state.graph is not None:
            found = graph_gradients(state.graph, targets, flat, seeds)
        else:
            found = self._eager_gradient(targets, flat, seeds)
        out = []
        for group in values:
            parts = [part for part in found[: len(group)] if part is not None]
            found = found[len(group) :]
            out.append(_sum(parts))
        return out

    def _eager_gradient(self, targets: list[Any], flat: list[Any], seeds: list[Any]) -> list[Any]:
        ys = [to_tensor(target) if not hasattr(target, "_as_tensor") else convert(target)
              for target in targets]
        dys = [
            None if seed is None else _seed(convert(seed, y.dtype), y) for seed, y in zip(seeds, ys)
        ]
        found = self._tape.gradient(ys, dys, flat)
        return [from_rows(grad) if isinstance(grad, tuple) else grad for grad in found]

    def _values_of(self, source: Any) -> list[Any]:
        """The tensors a source stands for: a variable was perhaps read more than once."""
        if isinstance(source, (Tensor, Output)):
            return [source]
        if hasattr(source, "_with_variables"):
            raise TypeError(
                f"gradients are taken by the shards of a variable, not by {source!r}: give its "
                "'variables'"
            )
        if hasattr(source, "_as_tensor"):
            _, values = self._watched.get(id(source), (None, []))
            return list(values)
        raise TypeError(
            f"gradients are taken by tensors and variables, not by {type(source).__name__}"
        )

    def jacobian(
        self, target: Any, sources: Any, unconnected_gradients: str = "none"
    ) -> Any:
        """d target / d source for every element of `target` (one tensor): tensors of shape
        target.shape + source.shape. Computed by one backward pass per element."""
        self._use()
        flat = nest.flatten(sources)
        count = _elements(target)
        rows = [self._gradient([target], flat, [_one_hot(target, i)]) for i in range(count)]
        out: list[Any] = []
        for k, source in enumerate(flat):
            grads = _connect([row[k] for row in rows], [source] * count, "zero")
            if all(row[k] is None for row in rows) and unconnected_gradients == "none":
                out.append(None)
                continue
            out.append(_stacked(grads, [*target.shape, *source.shape]))
        return nest.pack(sources, out)

    def batch_jacobian(self, target: Any, source: Any) -> Any:
        """d target[b] / d source[b] for every b: shape [b] + target.shape[1:] + source.shape[1:].
        Element b of the target may depend on element b of the source only."""
        self._use()
        if target.shape[0] != source.shape[0]:
            raise errors.InvalidArgumentError(
                f"the target has {target.shape[0]} rows and the source {source.shape[0]}"
            )
        batch = target.shape[0]
        width = _elements(target) // max(batch, 1)
        parts = []
        for i in range(width):
            seed = np.zeros((batch, width), np.float64)
            seed[:, i] = 1
            (grad,) = self._gradient([target], [source], [seed.reshape(target.shape)])
            (grad,) = _connect([grad], [source], "zero")
            parts.append(apply("Reshape", (grad,), {"shape": [batch, 1, *source.shape[1:]]}))
        joined = apply("Concat", parts, {"axis": 1})
        shape = [batch, *target.shape[1:], *source.shape[1:]]
        return apply("Reshape", (joined,), {"shape": shape})


def _add_recorded_line(error: errors.Error) -> None:
    """The line that ran the op named in the error, when the tape noted it, else the present one."""
    noted = re.search(r" at ([^\n]*:\d+) lies between", error.message)
    if noted is None:
        add_line(error)
        return
    error.message = error.message.replace(f" at {noted[1]}", "", 1)
    add_line(error, noted[1])


def _seed(seed: Any, y: Tensor) -> Any:
    if seed.shape != y.shape:
        raise errors.InvalidArgumentError(
            f"an output gradient has shape {seed.shape} where the target has {y.shape}"
        )
    return seed


def _elements(target: Any) -> int:
    if target.shape is None or any(extent < 0 for extent in target.shape):
        raise errors.InvalidArgumentError(
            f"the jacobian of a value of unknown extents {target.shape} cannot be laid out"
        )
    return int(np.prod(target.shape, dtype=np.int64))


def _one_hot(target: Any, index: int) -> np.ndarray:
    seed = np.zeros(_elements(target), np.float64)
    seed[index] = 1
    return seed.reshape(target.shape)


def _stacked(parts: list[Any], shape: list[int]) -> Any:
    if not parts:
        return convert(np.zeros(shape, np.float32))
    rows = [apply("Reshape", (part,), {"shape": [1, *part.shape]}) for part in parts]
    return apply("Reshape", (apply("Concat", rows, {"axis": 0}),), {"shape": shape})


def _sum(parts: list[Any]) -> Any:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, IndexedSlices) for part in parts):
        indices = [part.indices for part in parts]
        if len({index.dtype for index in indices}) > 1:
            indices = [apply("Cast", (index,), {"dtype": "int64"}) for index in indices]
        return IndexedSlices(
            apply("Concat", [part.values for part in parts], {"axis": 0}),
            apply("Concat", indices, {"axis": 0}), parts[0].dense_shape,
        )  # fmt: skip
    return apply("AddN", [convert(part) for part in parts])


def _connect(found: list[Any], sources: list[Any], unconnected: str) -> list[Any]:
    if unconnected == "none":
        return found
    if unconnected != "zero":
        raise ValueError(f"unconnected_gradients is {unconnected!r}; it is 'none' or 'zero'")
    return [
        apply("ZerosLike", (source,)) if grad is None else grad
        for grad, source in zip(found, sources)
    ]


def graph_gradients(
    graph: Any, ys: Sequence[Any], xs: Sequence[Any], grad_ys: Sequence[Any]
) -> list[Any]:
    """As gradients(), in `graph`; values from outside stand for their captures."""
    inside: list[Output | None] = []
    for x in xs:
        if type(x) is Output and x.graph is graph.native:
            inside.append(x)
        elif isinstance(graph, FuncGraph):
            inside.append(graph.captured(x))
        else:
            inside.append(None)
    targets = [graph.enter(y) for y in ys]
    seeds = [
        None if dy is None else graph.enter(convert(dy, y.dtype)) for dy, y in zip(grad_ys, targets)
    ]
    wrt = [x for x in inside if x is not None]
    first = len(graph.native)
    found = iter(graph.native.gradients(targets, seeds, wrt))
    graph.place_nodes(graph.native, first)
    return [None if x is None else _as_rows(next(found), x) for x in inside]


def _as_rows(grad: Any, of: Any) -> Any:
    """IndexedSlices where a gradient is rows added to zeros; the zeros are then never made."""
    shape = of.shape
    if grad is None or shape is None or any(extent < 0 for extent in shape):
        return grad
    terms = grad.inputs if grad.op_type == "AddN" else [grad]
    for term in terms:
        whole = term.op_type == "GatherGrad" and term.int_attr("axis", 0) == 0
        if not whole or term.int_attr("batch_dims", 0) != 0:
            return grad
        if term.inputs[1].dtype != terms[0].inputs[1].dtype:
            return grad
    values = [apply("Reshape", (t.inputs[0],), {"shape": [-1, *shape[1:]]}) for t in terms]
    indices = [apply("Reshape", (t.inputs[1],), {"shape": [-1]}) for t in terms]
    if len(terms) == 1:
        return IndexedSlices(values[0], indices[0], shape)
    return IndexedSlices(
        apply("Concat", values, {"axis": 0}), apply("Concat", indices, {"axis": 0}), shape
    )


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    unconnected_gradients: str = "none",
) -> list[Any]:
    """Gradients of the sum of `ys` by each of `xs`, all values of one graph (tf.gradients): a list
    of values, None (or zeros) where nothing flows. For values computed at once use GradientTape.
    """
    targets, sources = nest.flatten(ys), nest.flatten(xs)
    symbol = next((y for y in targets if isinstance(y, Output)), None)
    if symbol is None:
        raise errors.InvalidArgumentError(
            "gradients() works on values of graphs; use GradientTape for values computed at once"
        )
    graph = state.graph if state.graph is not None else graph_of(symbol)
    seeds = [None] * len(targets) if grad_ys is None else nest.flatten(grad_ys)
    try:
        found = graph_gradients(graph, targets, sources, seeds)
    except errors.Error as error:
        add_line(error)
        raise
    return _connect(found, sources, unconnected_gradients)


@contextmanager
def _unrecorded() -> Iterator[None]:
    """No tape of this thread listens while the context lasts."""
    stopped = [tape for tape in state.tapes if tape._tape.listening]
    for tape in stopped:
        tape._tape.stop()
    try:
        yield
    finally:
        for tape in stopped:
            tape._tape.start()


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a gradient of its own (tf.custom_gradient). `function` returns its result and
    a function from the gradients of the result to those of the arguments:

        @sidereal.custom_gradient
        def log1pexp(x):
            e = sidereal.exp(x)
            return sidereal.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.graph is not None:
            return _custom_in_graph(function, args, kwargs)
        inputs = [convert(arg) for arg in args]
        with _unrecorded():
            result, grad = function(*inputs, **kwargs)
        outputs = [_native.alias(ENGINE, convert(value)) for value in nest.flatten(result)]

        def backward(dys: list[Any]) -> list[Any]:
            filled = [
                apply("ZerosLike", (y,)) if dy is None else dy for dy, y in zip(dys, outputs)
            ]
            found = _custom_gradients(function, grad, filled, len(inputs))
            return [None if one is None else convert(one) for one in found]

        _native.record(ENGINE, function.__name__, inputs, outputs, backward)
        return nest.pack(result, outputs)

    return wrapper


def _custom_gradients(
    function: Callable[..., Any], grad: Callable[..., Any], dys: list[Any], arguments: int
) -> list[Any]:
    found = grad(*dys)
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(found) != arguments:
        raise errors.InvalidArgumentError(
            f"the gradient of {function.__name__} has {len(found)} values; it has {arguments} "
            "arguments"
        )
    return found


def _custom_in_graph(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The gradient becomes a function of the graph, which a WithGradient node names."""
    graph = state.graph
    assert graph is not None
    inputs = [graph.enter(convert(arg)) for arg in args]
    result, grad = function(*inputs, **kwargs)
    values = [graph.enter(convert(value)) for value in nest.flatten(result)]
    wrt: list[int] = []

    def backward(dys: list[Any]) -> list[Any]:
        found = _custom_gradients(function, grad, dys, len(inputs))
        wrt.extend(i for i, one in enumerate(found) if one is not None)
        return [one for one in found if one is not None]

    body = Body("gradient", backward, [(value.dtype, value.shape) for value in values], graph)
    made = add_control(
        graph,
        "WithGradient",
        [*values, *inputs],
        {"gradient": (body, body.outputs)},
        {"values": len(values), "arguments": len(inputs), "wrt": wrt},
        None,
    )
    return nest.pack(result, made)


__all__ = ["GradientTape", "IndexedSlices", "custom_gradient", "gradients"]
