"""Functions for ONNX Runtime and other servers.

    sidereal.onnx.export(predict, "model.onnx")

A function with one trace becomes an ONNX model: what its results need, with the variables and
tensors it reads as initializers. Extents that are open stay open. Needs the package `onnx`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native, errors, saved_model
from ._onnx_graph import Model, Nodes, Op, array_of
from ._onnx_rules import RULES, why_not
from ._serving import needed_for
from ._sites import add_line
from .function import ConcreteFunction, Function

#: The version of ONNX's operators that models are written for by default: ONNX Runtime 1.14 on.
DEFAULT_OPSET = 18
#: Larger models keep their initializers in a file of their own.
_MAX_FILE_BYTES = 1_900_000_000


def lower(
    target: Nodes,
    holder: Any,
    fed: Mapping[Any, str],
    outputs: Sequence[tuple[int, int]],
    site: str = "",
) -> list[str]:
    """Adds what `outputs` of a graph or body need to `target`; their names. `fed` has the names of
    placeholders by node, or of a body's arguments by number."""
    nodes = _native.nodes_of(holder)
    is_body = isinstance(holder, _native.Body)
    needed = needed_for(nodes, outputs)
    names: dict[tuple[int, int], str] = {}
    for i, node in enumerate(nodes):
        if not needed[i]:
            continue
        name, op, inputs, attrs, _specs = node
        here = site if is_body else holder.site_of(name) or site
        if op in ("Placeholder", "Arg"):
            known = fed.get(attrs["index"] if op == "Arg" else i)
            if known is None:
                raise errors.InvalidArgumentError(f"Placeholder '{name}' has no value")
            names[i, 0] = known
            continue
        if op == "Const":
            value = attrs["value"]
            names[i, 0] = target.model.constant(array_of(value), value.dtype)
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
        fed[inside.node] = model.initializer(wanted, array_of(tensor))
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
    model = Model(opset, lower)
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
