"""Functions for ONNX Runtime and other servers.

    sidereal.onnx.export(predict, "model.onnx")

A function with one trace becomes an ONNX model: what its results need, with the variables and
tensors it reads as initializers. Extents that are open stay open. Needs the package `onnx`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from . import _native, errors, saved_model
from ._files import written_whole
from ._onnx_graph import ExternalData, Model, Nodes, Op, array_of
from ._onnx_rules import RULES, why_not
from ._serving import needed_for
from ._sites import add_line
from .function import ConcreteFunction, Function

#: The version of ONNX's operators that models are written for by default: ONNX Runtime 1.14 on.
DEFAULT_OPSET = 18
#: Values of so many bytes are kept in a file beside the model.
EXTERNAL_DATA_BYTES = 1 << 30


def lower(
    target: Nodes,
    holder: Any,
    fed: Mapping[Any, str],
    outputs: Sequence[tuple[int, int]],
    site: str = "",
    given: Mapping[int, str] | None = None,
) -> list[str]:
    """Adds what `outputs` of a graph or body need to `target`; their names. `fed` has the names of
    placeholders by node, or of a body's arguments by number; `given` those of nodes of one output
    that are known without what they depend on."""
    nodes = _native.nodes_of(holder)
    is_body = isinstance(holder, _native.Body)
    needed = needed_for(_without(nodes, given or {}), outputs)
    names: dict[tuple[int, int], str] = {}
    for i, node in enumerate(nodes):
        if not needed[i]:
            continue
        if given is not None and i in given:
            names[i, 0] = given[i]
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


def _without(nodes: list[Any], given: Mapping[int, Any]) -> list[Any]:
    """Nodes, of which some depend on nothing."""
    return [(*node[:2], [] if i in given else node[2]) for i, node in enumerate(nodes)]


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


def _row_lookups(concrete: ConcreteFunction) -> dict[int, Any]:
    """Nodes that take rows of a variable by their numbers, with that variable and the numbers."""
    captured = {
        inside.node: value
        for value, inside in concrete.graph.captures
        if hasattr(value, "_present") and len(value.shape) == 2
    }
    found = {}
    for i, (_, op, inputs, attrs, _) in enumerate(_native.nodes_of(concrete.graph.native)):
        if op != "Gather" or inputs[0][0] not in captured:
            continue
        if attrs.get("axis", 0) == 0 and not attrs.get("batch_dims", 0) and "out_type" not in attrs:
            found[i] = (captured[inputs[0][0]], inputs[1])
    return found


def _make(
    model: Model, concrete: ConcreteFunction, inputs: list[str], outputs: list[str], rows: bool
) -> Any:
    helper = model.onnx.helper
    graph = concrete.graph
    lookups = _row_lookups(concrete) if rows else {}
    if rows and not lookups:
        raise errors.InvalidArgumentError(
            f"function '{concrete.name}' takes no rows of a table by ids: there is nothing that "
            "vectors could be given for; export it with inputs='ids'"
        )
    fed: dict[int, str] = {}
    infos = []
    used = _used(graph.native, concrete.outputs[: concrete._count], lookups)
    for name, value in zip(inputs, graph.arguments):
        if rows and value.node not in used:
            continue
        fed[value.node] = model.name(name)
        infos.append(model.value_info(fed[value.node], value.dtype, value.shape, "batch"))
    given: dict[int, str] = {}
    known: dict[Any, str] = {}
    for node, (table, ids) in lookups.items():
        if node not in used:
            continue
        key = (id(table), ids)
        if key not in known:
            known[key] = model.name(table.name)
            dtype, shape = _native.nodes_of(graph.native)[node][4][0]
            infos.append(model.value_info(known[key], dtype, shape, "batch"))
        given[node] = known[key]
    for name in outputs:
        model.name(name)
    for value, inside in graph.captures:
        if inside.node not in used:
            continue
        tensor = value._present() if hasattr(value, "_present") else value
        wanted = getattr(value, "name", None) or "captured"
        fed[inside.node] = model.initializer(wanted, array_of(tensor))
    nodes = Nodes(model)
    results = concrete.outputs[: concrete._count]
    at_results = [(value.node, value.index) for value in results]
    made = lower(nodes, graph.native, fed, at_results, given=given)
    out_infos = []
    for name, value, at in zip(outputs, results, made):
        nodes.made.append(helper.make_node("Identity", [at], [name], name=model.name(name)))
        out_infos.append(model.value_info(name, value.dtype, value.shape, "batch"))
    return helper.make_graph(
        nodes.made, concrete.name, infos, out_infos, initializer=model.initializers
    )


def _used(native: Any, outputs: Sequence[Any], given: Mapping[int, Any]) -> set[int]:
    """Nodes that `outputs` need, when what `given` depends on is not needed."""
    nodes = _without(_native.nodes_of(native), given)
    needed = needed_for(nodes, [(value.node, value.index) for value in outputs])
    return {i for i, one in enumerate(needed) if one}


@contextlib.contextmanager
def _external(target: Path, limit: int) -> Iterator[ExternalData]:
    """The file for the large values of a model, which is there when the context has ended."""
    with contextlib.ExitStack() as files:

        def opens() -> BinaryIO:
            return files.enter_context(written_whole(target.with_name(f"{target.name}.data")))

        yield ExternalData(f"{target.name}.data", limit, opens)


def export(
    function: Any,
    path: str | os.PathLike[str],
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int = DEFAULT_OPSET,
    inputs: str = "ids",
    external_data_bytes: int = EXTERNAL_DATA_BYTES,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a function to an ONNX file.

    function: a sidereal.function with one trace (or an input_signature), one trace of it, or a
        loaded function or signature. Assignments to variables are left out.
    input_names, output_names: as in saved_model's signatures when absent: names of parameters, keys
        of a dict that is returned, output_0, output_1, ...
    opset: version of ONNX's operators, at least 18.
    inputs: "vectors": rows that are taken of a variable by numbers become inputs of its name, for
        a server that has the tables elsewhere (TableFile); numbers that are for nothing else are
        none then.
    external_data_bytes: values of so many bytes, and more, are in a file PATH.data beside the
        model, as are those for which the model would be too long a file (1.9 GB).
    metadata: what is kept in the file's metadata.

    Open extents of the inputs stay open. Errors: UnimplementedError naming an op that ONNX cannot
    express, its node and line, and what to do; UnavailableError without the package onnx.
    """
    if opset < DEFAULT_OPSET:
        raise errors.InvalidArgumentError(f"opset is {opset}; it must be {DEFAULT_OPSET} or more")
    if inputs not in ("ids", "vectors"):
        raise errors.InvalidArgumentError(f"inputs is '{inputs}'; it is ids or vectors")
    concrete, taken, outputs = _trace_of(function)
    for what, names, given in (("input", taken, input_names), ("output", outputs, output_names)):
        if given is None:
            continue
        if len(given) != len(names) or len(set(given)) != len(given):
            raise errors.InvalidArgumentError(
                f"{what}_names must be {len(names)} different names: {list(given)}"
            )
        names[:] = given
    if set(taken) & set(outputs):
        outputs = [f"{name}_out" if name in taken else name for name in outputs]
    target = Path(path)
    with _external(target, external_data_bytes) as external:
        model = Model(opset, lower, external)
        graph = _make(model, concrete, taken, outputs, inputs == "vectors")
        made = model.onnx.helper.make_model(
            graph,
            opset_imports=[model.onnx.helper.make_opsetid("", opset)],
            producer_name="sidereal",
            producer_version=_native.__version__,
            ir_version=8,
        )
        if metadata:
            model.onnx.helper.set_model_props(made, dict(metadata))
        # The checker wants ranks, ONNX does not.
        known = all(info.type.tensor_type.HasField("shape") for info in graph.output)
        if known and not external.is_used:
            model.onnx.checker.check_model(made)
    with written_whole(target) as file:
        file.write(made.SerializeToString())
    if known and external.is_used:  # It looks whether the values are there.
        model.onnx.checker.check_model(str(target))


__all__ = ["DEFAULT_OPSET", "EXTERNAL_DATA_BYTES", "export"]
