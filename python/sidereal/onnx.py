"""Functions for ONNX Runtime and other servers.

    sidereal.onnx.export(predict, "model.onnx")

A function with one trace becomes an ONNX model: what its results need, with the variables and
tensors it reads as initializers. Extents that are open stay open. Needs the package `onnx`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _native, errors, saved_model
from ._serving import needed_for
from ._sites import add_line
from .dtypes import as_dtype, bfloat16, float32, name_of
from .function import ConcreteFunction, Function

#: The version of ONNX's operators that models are written for by default: ONNX Runtime 1.14 on.
DEFAULT_OPSET = 18
#: Larger models keep their initializers in a file of their own.
_MAX_FILE_BYTES = 1_900_000_000

#: What makes ONNX nodes of an op; gets and gives names of values.
Rule = Callable[["Op"], "str | Sequence[str]"]


def _modules() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise errors.UnavailableError(
            "the export needs the package onnx, which is not installed: pip install onnx"
        ) from error
    return onnx


class Model:
    """The ONNX model being made: initializers and names, which all of its graphs share."""

    def __init__(self, opset: int) -> None:
        self.onnx = _modules()
        self.opset = opset
        self.initializers: list[Any] = []
        self.bytes = 0
        #: Values of constants by the name they have in the model.
        self.constants: dict[str, np.ndarray] = {}
        self._names: set[str] = set()
        self._known: dict[Any, str] = {}
        self._types: dict[str, list[set[str]]] = {}

    def name(self, wanted: str) -> str:
        """`wanted`, or something like it that is not yet used."""
        made, number = wanted, 0
        while made in self._names or not made:
            number += 1
            made = f"{wanted}_{number}"
        self._names.add(made)
        return made

    def dtype(self, dtype: Any) -> int:
        """ONNX's number of a dtype."""
        name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(name_of(dtype), name_of(dtype).upper())
        return getattr(self.onnx.TensorProto, name)

    def types_of(self, op: str) -> list[set[str]]:
        """The types that each input of an operator may have."""
        if op not in self._types:
            schema = self.onnx.defs.get_schema(op, self.opset)
            self._types[op] = [set(parameter.types) for parameter in schema.inputs]
        return self._types[op]

    def initializer(self, name: str, array: np.ndarray) -> str:
        """A value of the model."""
        made = self.name(name)
        self.initializers.append(self.onnx.numpy_helper.from_array(array, made))
        self.bytes += array.nbytes
        return made

    def constant(self, value: Any, dtype: Any) -> str:
        """A constant; equal ones are one."""
        array = np.ascontiguousarray(value, dtype=_numpy_dtype(dtype)).reshape(np.shape(value))
        key = (array.dtype.str, name_of(dtype), array.shape, array.tobytes())
        if array.dtype == object:
            key = (*key[:3], tuple(array.flat))
        if key not in self._known:
            made = self.initializer("const", array)
            self._known[key] = made
            self.constants[made] = array
        return self._known[key]

    def value_info(self, name: str, dtype: Any, shape: Any, batch: str | None = None) -> Any:
        """The description of an input or output."""
        dims: Any = None
        if shape is not None:
            dims = [
                extent if extent >= 0 else (batch if i == 0 and batch else f"{name}_dim_{i}")
                for i, extent in enumerate(shape)
            ]
        return self.onnx.helper.make_tensor_value_info(name, self.dtype(dtype), dims)


def _numpy_dtype(dtype: Any) -> Any:
    if as_dtype(dtype) is bfloat16:
        import ml_dtypes

        return ml_dtypes.bfloat16
    return object if name_of(dtype) == "string" else np.dtype(as_dtype(dtype))


def _type_name(dtype: Any) -> str:
    """As ONNX's schemas call a dtype."""
    return {"float32": "float", "float64": "double"}.get(name_of(dtype), name_of(dtype))


def _array_of(tensor: Any) -> np.ndarray:
    """A tensor's elements as ONNX's package takes them."""
    if as_dtype(tensor.dtype) is bfloat16:
        from .ops import cast

        return cast(tensor, float32).numpy().astype(_numpy_dtype(bfloat16))
    return tensor.numpy()


class Nodes:
    """The nodes of one ONNX graph in the making: the model's own, or a body."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.made: list[Any] = []

    def emit(
        self, op: str, inputs: Sequence[str], outputs: int, hint: str, attrs: Any
    ) -> list[str]:
        """Adds a node; the names of its outputs."""
        names = [self.model.name(hint) for _ in range(outputs)]
        self.made.append(
            self.model.onnx.helper.make_node(op, list(inputs), names, name=names[0], **attrs)
        )
        return names

    def graph(
        self, name: str, inputs: Sequence[Any], outputs: Sequence[tuple[str, Any, Any]]
    ) -> Any:
        """The finished graph, for an attribute of a node. Its outputs are values of its own."""
        infos = []
        for value, dtype, shape in outputs:
            (own,) = self.emit("Identity", [value], 1, f"{name}_out", {})
            infos.append(self.model.value_info(own, dtype, shape))
        return self.model.onnx.helper.make_graph(self.made, self.model.name(name), inputs, infos)


class Op:
    """One node of a function while it is exported, as rules see it."""

    def __init__(
        self,
        nodes: Nodes,
        holder: Any,
        node: tuple[Any, ...],
        inputs: list[str],
        specs: list[tuple[Any, Any]],
        site: str,
    ) -> None:
        self.nodes = nodes
        self.model = nodes.model
        self.holder = holder
        self.name, self.op, _, self.attrs, self.outputs = node
        self.inputs = inputs
        self.specs = specs
        self.site = site

    def emit(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node of one output; its name."""
        return self.emit_many(op, 1, *inputs, **attrs)[0]

    def emit_many(self, op: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """Adds a node of several outputs; their names."""
        takes = self.model.types_of(op)
        for i, value in enumerate(inputs):
            if value not in self.inputs:
                continue
            dtype = self.specs[self.inputs.index(value)][0]
            allowed = takes[min(i, len(takes) - 1)]
            if allowed and f"tensor({_type_name(dtype)})" not in allowed:
                self.fail(f"ONNX's {op} does not take {name_of(dtype)}; cast to float32 or int32")
        return self.nodes.emit(op, inputs, count, self.name, attrs)

    def ints(self, values: Any) -> str:
        """A constant of int64."""
        return self.model.constant(np.asarray(values, np.int64), "int64")

    def number(self, value: Any, like: int = 0) -> str:
        """A scalar constant of the dtype of an input."""
        return self.model.constant(np.asarray(value), self.specs[like][0])

    def constant(self, i: int) -> np.ndarray | None:
        """The value of an input when it is a constant."""
        return self.model.constants.get(self.inputs[i])

    def cast(self, value: str, dtype: Any) -> str:
        return self.emit("Cast", value, to=self.model.dtype(dtype))

    def rank(self, i: int = 0) -> int:
        """The number of dimensions of an input."""
        shape = self.specs[i][1]
        if shape is None:
            self.fail("the number of dimensions of its input is not known; use ensure_shape()")
        return len(shape)

    def axis(self, name: str = "axis", rank: int | None = None, default: int = 0) -> int:
        """An attribute that names a dimension, counted from the front."""
        axis = self.attrs.get(name, default)
        return axis if axis >= 0 else axis + (self.rank() if rank is None else rank)

    def ints_of(self, name: str, i: int) -> str:
        """Integers that are an attribute or an input, as int64."""
        if name in self.attrs:
            value = self.attrs[name]
            return self.ints(value)
        known = self.constant(i)
        if known is not None:
            return self.ints(known)
        return self.cast(self.inputs[i], "int64")

    def known_ints(self, name: str, i: int, what: str) -> list[int]:
        """As ints_of(), when they must be known."""
        if name in self.attrs:
            return [int(value) for value in self.attrs[name]]
        known = self.constant(i) if i < len(self.inputs) else None
        if known is None:
            self.fail(f"{what} is computed; ONNX needs it as a constant")
        return [int(value) for value in np.asarray(known).reshape(-1)]

    def fail(self, why: str) -> Any:
        """Says that this node cannot be exported."""
        error = errors.UnimplementedError(
            f"{self.op} '{self.name}' cannot be exported to ONNX: {why}"
        )
        add_line(error, self.site)
        raise error

    # ---- functions in a graph --------------------------------------------------------------------

    def body(self, attr: str) -> Any:
        """The function that an attribute names."""
        return _native.body_of(self.holder, self.attrs[attr])

    def run(self, nodes: Nodes, body: Any, arguments: Sequence[str]) -> list[str]:
        """Adds what a function does to `nodes`; the names of its results."""
        return lower(nodes, body, dict(enumerate(arguments)), _native.outputs_of(body), self.site)

    def bodies(self) -> Nodes:
        """A graph of its own for a body."""
        return Nodes(self.model)

    def result_specs(self, body: Any) -> list[tuple[Any, Any]]:
        """Dtype and shape of each value that a function returns."""
        nodes = _native.nodes_of(body)
        return [nodes[node][4][index] for node, index in _native.outputs_of(body)]


def lower(
    target: Nodes,
    holder: Any,
    fed: Mapping[Any, str],
    outputs: Sequence[tuple[int, int]],
    site: str = "",
) -> list[str]:
    """Adds what `outputs` of a graph or body need to `target`; their names. `fed` has the names of
    placeholders by node, or of a body's arguments by number."""
    from ._onnx_rules import RULES, why_not

    nodes = _native.nodes_of(holder)
    is_body = isinstance(holder, _native.Body)
    needed = needed_for(nodes, outputs)
    names: dict[tuple[int, int], str] = {}
    for i, node in enumerate(nodes):
        if not needed[i]:
            continue
        name, op, inputs, attrs, specs = node
        here = site if is_body else holder.site_of(name) or site
        if op in ("Placeholder", "Arg"):
            known = fed.get(attrs["index"] if op == "Arg" else i)
            if known is None:
                raise errors.InvalidArgumentError(f"Placeholder '{name}' has no value")
            names[i, 0] = known
            continue
        if op == "Const":
            value = attrs["value"]
            names[i, 0] = target.model.constant(_array_of(value), value.dtype)
            continue
        view = Op(
            target,
            holder,
            node,
            [_made(names, value, nodes, here) for value in inputs],
            [nodes[at][4][index] for at, index in inputs],
            here,
        )
        rule = RULES.get(op)
        if rule is None:
            view.fail(why_not(op))
        try:
            made = rule(view)  # type: ignore[misc]
        except errors.Error as error:
            add_line(error, here)
            raise
        made = [made] if isinstance(made, str) else list(made)
        for index, value in enumerate(made):
            names[i, index] = value
    return [_made(names, value, nodes, site) for value in outputs]


def _made(names: Mapping[Any, str], value: Sequence[int], nodes: Any, site: str) -> str:
    """The name of a value; a rule may have made only some of an op's outputs."""
    found = names.get(tuple(value))
    if found is None:
        name, op = nodes[value[0]][:2]
        error = errors.UnimplementedError(
            f"{op} '{name}' cannot be exported to ONNX: its output {value[1]} is used, for which "
            "there is no rule; calculate it outside of the model"
        )
        add_line(error, site)
        raise error
    return found


def _trace_of(function: Any) -> tuple[ConcreteFunction, list[str], list[str]]:
    if isinstance(function, saved_model.SignatureFunction):
        return function.concrete_function, list(function.inputs), list(function.outputs)
    if not isinstance(function, (Function, ConcreteFunction, saved_model.RestoredFunction)):
        raise TypeError(
            f"export() takes a sidereal.function, a trace of one, or a loaded signature; not "
            f"{type(function).__name__}"
        )
    traces, parameters = saved_model._traces(function)
    if len(traces) != 1:
        raise errors.InvalidArgumentError(
            f"the function has {len(traces)} traces; give it an input_signature, or give one "
            "trace: f.get_concrete_function(...)"
        )
    inputs = saved_model._input_names(traces[0], parameters)
    return traces[0], inputs, saved_model._output_names(traces[0])


def _make(model: Model, concrete: ConcreteFunction, inputs: list[str], outputs: list[str]) -> Any:
    helper = model.onnx.helper
    graph = concrete.graph
    fed: dict[int, str] = {}
    infos = []
    for name, value in zip(inputs, graph.arguments):
        fed[value.node] = model.name(name)
        infos.append(model.value_info(fed[value.node], value.dtype, value.shape, "batch"))
    for name in outputs:
        model.name(name)
    used = _used(graph.native, concrete.outputs[: concrete._count])
    for value, inside in graph.captures:
        if inside.node not in used:
            continue
        tensor = value._present() if hasattr(value, "_present") else value
        wanted = getattr(value, "name", None) or "captured"
        fed[inside.node] = model.initializer(wanted, _array_of(tensor))
    nodes = Nodes(model)
    results = concrete.outputs[: concrete._count]
    made = lower(nodes, graph.native, fed, [(value.node, value.index) for value in results])
    out_infos = []
    for name, value, at in zip(outputs, results, made):
        nodes.made.append(helper.make_node("Identity", [at], [name], name=model.name(name)))
        out_infos.append(model.value_info(name, value.dtype, value.shape, "batch"))
    return helper.make_graph(
        nodes.made, concrete.name, infos, out_infos, initializer=model.initializers
    )


def _used(native: Any, outputs: Sequence[Any]) -> set[int]:
    """Nodes that `outputs` need."""
    nodes = _native.nodes_of(native)
    used = {value.node for value in outputs}
    for i in range(len(nodes) - 1, -1, -1):
        if i in used:
            used.update(node for node, _ in nodes[i][2])
    return used


def export(
    function: Any,
    path: str | os.PathLike[str],
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int = DEFAULT_OPSET,
) -> None:
    """Writes a function to an ONNX file.

    function: a sidereal.function with one trace (or an input_signature), one trace of it, or a
        loaded function or signature. Assignments to variables are left out.
    input_names, output_names: as in saved_model's signatures when absent: names of parameters, keys
        of a dict that is returned, output_0, output_1, ...
    opset: version of ONNX's operators, at least 18.

    Open extents of the inputs stay open. Models beyond 1.9 GB keep their values in a file beside
    it. Errors: UnimplementedError naming an op that ONNX cannot express, its node and line, and
    what to do; UnavailableError without the package onnx.
    """
    if opset < DEFAULT_OPSET:
        raise errors.InvalidArgumentError(f"opset is {opset}; it must be {DEFAULT_OPSET} or more")
    concrete, inputs, outputs = _trace_of(function)
    for what, names, given in (("input", inputs, input_names), ("output", outputs, output_names)):
        if given is None:
            continue
        if len(given) != len(names) or len(set(given)) != len(given):
            raise errors.InvalidArgumentError(
                f"{what}_names must be {len(names)} different names: {list(given)}"
            )
        names[:] = given
    if set(inputs) & set(outputs):
        outputs = [f"{name}_out" if name in inputs else name for name in outputs]
    model = Model(opset)
    graph = _make(model, concrete, inputs, outputs)
    made = model.onnx.helper.make_model(
        graph,
        opset_imports=[model.onnx.helper.make_opsetid("", opset)],
        producer_name="sidereal",
        producer_version=_native.__version__,
        ir_version=8,
    )
    target = Path(path)
    known = all(info.type.tensor_type.HasField("shape") for info in graph.output)
    if model.bytes > _MAX_FILE_BYTES:
        model.onnx.save(
            made, str(target), save_as_external_data=True, location=target.name + ".data"
        )
        return
    if known:  # The checker wants ranks, ONNX does not.
        model.onnx.checker.check_model(made)
    target.write_bytes(made.SerializeToString())


__all__ = ["DEFAULT_OPSET", "export"]
