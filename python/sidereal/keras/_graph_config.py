"""Functional models as configs: the layers and ops between their inputs and outputs.

    {"name": ..., "layers": [entries], "input_layers": tensors, "output_layers": tensors}

An entry is what serialize() makes of a layer, with its name in the graph and its calls
("inbound_nodes"). A tensor in arguments is the name of an entry, the number of the call, and which
of its results. Ops are entries by their names in the engine, constants and variables that ops read
are entries too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import dtypes, errors
from .._dispatch import ENGINE, apply, convert
from .._native import Output, Tensor
from ..nest import flatten
from ..ops.embedding import SparseTensor
from ..ops.ragged import RaggedTensor
from ..variable import Variable
from ._configs import deserialize, hooks, serialize, snake_case
from ._functional import Functional
from ._layer import Layer
from ._recording import Key, Node, Operation, is_symbolic, key_of, origin_of, recording_of

#: Where a tensor comes from: the name of an entry, the number of the call, which of its results.
_Place = tuple[str, int, int]
_TENSOR, _OP, _VALUE, _VARIABLE = "__keras_tensor__", "__op__", "__constant__", "__variable__"
_NAMED = {"RaggedTensor": RaggedTensor, "SparseTensor": SparseTensor}
#: Ops of the engine that have a state and that models may be made of all the same.
_STATEFUL = {
    "Assert", "Dropout", "RandomNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal",
}  # fmt: skip


def _check_op(where: str, op: Any) -> dict[str, Any]:
    """The schema of an op that a model may be made of."""
    schema: dict[str, Any] | None = None
    if isinstance(op, str):
        try:
            schema = ENGINE.schema(op)
        except errors.Error:
            schema = None
    if schema is None:
        raise ValueError(f"model '{where}': there is no op {op!r} in this release")
    has_functions = any(kind == "function" for _, kind, _, _ in schema["attrs"])
    if has_functions or (schema["stateful"] and op not in _STATEFUL):
        raise ValueError(
            f"model '{where}': the op {op} uses what is outside of the model, and cannot be saved "
            "with it; have a layer do it in its call()"
        )
    return schema


# --- Writing.


class _Writer:
    """Gives names to what a model is made of, and writes its parts."""

    def __init__(self, functional: Functional, write: Callable[[Any], Any]) -> None:
        self._functional, self._write_layer = functional, write
        self._where = functional.where
        self._names: dict[int, str] = {}
        self._taken = {layer.name for layer in functional.layers}
        self.places: dict[Key, _Place] = {}
        self._entries: dict[str, dict[str, Any]] = {}

    def _name(self, operation: Any) -> str:
        if id(operation) not in self._names:
            name = operation.name
            if isinstance(operation, Operation):
                name = self._free(snake_case(operation.op))
            elif not isinstance(operation, Layer):
                name = self._free(name)
            self._names[id(operation)] = name
        return self._names[id(operation)]

    def _free(self, base: str) -> str:
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def _input(self, leaf: Output) -> None:
        """An Input in the place of what other layers and ops make before the model begins."""
        name = self._free(f"{origin_of(leaf)[0].operation.name}_input")
        shape = None if leaf.shape is None else [None if n < 0 else n for n in leaf.shape]
        config = {"batch_shape": shape, "dtype": dtypes.name_of(leaf.dtype), "name": name}
        self._entries[name] = {
            "module": "keras.layers", "class_name": "InputLayer", "config": config,
            "registered_name": None, "name": name,
            "inbound_nodes": [{"order": -1, "args": [], "kwargs": {}}],
        }  # fmt: skip
        self.places[key_of(leaf)] = (name, 0, 0)

    def node(self, node: Node, order: int) -> None:
        """A call, or what is read from outside."""
        if all(key_of(leaf) in self.places for leaf in node.outputs):
            return
        name = self._name(node.operation)
        if name not in self._entries:
            self._entries[name] = {**self._entry(node.operation, name), "inbound_nodes": []}
        nodes = self._entries[name]["inbound_nodes"]
        args, kwargs = node.arguments
        nodes.append({"order": order, "args": self.write(list(args)), "kwargs": self.write(kwargs)})
        for place, leaf in enumerate(node.outputs):
            self.places.setdefault(key_of(leaf), (name, len(nodes) - 1, place))

    def _entry(self, operation: Any, name: str) -> dict[str, Any]:
        if isinstance(operation, Layer):
            return {**self._write_layer(operation), "name": name}
        if isinstance(operation, Operation):
            _check_op(self._where, operation.op)
            config = {"op": operation.op, "attrs": serialize(dict(operation.attrs or {}))}
            return {"class_name": _OP, "config": config, "name": name}
        return self._read(operation.value, name)

    def _read(self, value: Any, name: str) -> dict[str, Any]:
        if isinstance(value, Tensor):
            return {"class_name": _VALUE, "config": serialize(value), "name": name}
        for layer in self._functional.layers:
            for number, own in enumerate(layer._wholes()):
                if own is value:
                    config: dict[str, Any] = {"layer": layer.name, "weight": number}
                    return {"class_name": _VARIABLE, "config": config, "name": name}
        if not isinstance(value, Variable):
            raise ValueError(
                f"model '{self._where}': an op reads {value!r}, which cannot be saved with it; "
                "have a layer do it in its call()"
            )
        config = {
            "name": value.name, "shape": list(value.shape), "dtype": dtypes.name_of(value.dtype),
            "trainable": value.trainable,
        }  # fmt: skip
        return {"class_name": _VARIABLE, "config": config, "name": name}

    def write(self, structure: Any) -> Any:
        """Arguments of a call, with tensors as their places."""
        if is_symbolic(structure):
            return {"class_name": _TENSOR, "config": list(self.places[key_of(structure)])}
        if isinstance(structure, (RaggedTensor, SparseTensor)):
            parts = [self.write(each) for each in structure]
            return {"class_name": type(structure).__name__, "config": parts}
        if isinstance(structure, Mapping):
            return {key: self.write(each) for key, each in structure.items()}
        if isinstance(structure, list):
            return [self.write(each) for each in structure]
        if isinstance(structure, tuple):
            items = [self.write(each) for each in structure]
            return {"class_name": "__tuple__", "config": {"value": items}}
        return serialize(structure)

    def run(self) -> dict[str, Any]:
        functional = self._functional
        inputs = flatten(functional.inputs)
        for leaf in inputs:
            if origin_of(leaf)[0].inputs:
                self._input(leaf)
        for order, node in enumerate(functional.nodes):
            self.node(node, order)
        return {
            "layers": list(self._entries.values()),
            "input_layers": self.write(functional.inputs),
            "output_layers": self.write(functional.outputs),
        }


def config_of(functional: Functional, write: Callable[[Any], Any] = serialize) -> dict[str, Any]:
    """The config of what lies between inputs and outputs; `write` makes entries of layers."""
    return _Writer(functional, write).run()


# --- Reading.


class _Reader:
    """Makes layers and calls them as a config says."""

    def __init__(
        self, where: str, config: Mapping[str, Any], make: Callable[[Any], Any],
        call: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._where, self._config, self._make, self._do = where, config, make, call
        self._made: dict[str, Any] = {}
        self._values: dict[_Place, Any] = {}
        self._recording: Any = None

    def _call(self, entry: Mapping[str, Any], index: int, node: Mapping[str, Any]) -> None:
        name, kind = entry["name"], entry["class_name"]
        if kind in (_VALUE, _VARIABLE):
            made = [self._outside(entry)]
        elif kind == _OP:
            made = flatten(self._op(entry["config"], self.read(node["args"])))
        else:
            layer = self._layer(entry)
            args, kwargs = self.read(node["args"]), self.read(node["kwargs"])
            is_input = not args and not kwargs
            made = flatten(layer.output if is_input else self._do(layer, *args, **kwargs))
        found = [each for each in made if is_symbolic(each)]
        if self._recording is None and found:
            self._recording = recording_of(found[0])
        for place, value in enumerate(found):
            self._values[name, index, place] = value

    def _layer(self, entry: Mapping[str, Any]) -> Any:
        name = entry["name"]
        if name not in self._made:
            layer = self._make(entry)
            if not isinstance(layer, Layer):
                raise ValueError(f"model '{self._where}': {layer!r} is no layer")
            self._made[name] = layer
        return self._made[name]

    def _op(self, config: Mapping[str, Any], inputs: Any) -> Any:
        schema = _check_op(self._where, config["op"])
        attrs = deserialize(config["attrs"])
        for name, kind, _, _ in schema["attrs"]:
            if kind == "dtype" and isinstance(attrs.get(name), str):
                attrs[name] = dtypes.as_dtype(attrs[name])
        return apply(config["op"], tuple(inputs), attrs)

    def _outside(self, entry: Mapping[str, Any]) -> Any:
        """The symbolic tensor of a constant or a variable that ops read."""
        config = entry["config"]
        if entry["class_name"] == _VALUE:
            return self._recording.capture(convert(deserialize(config)))
        if "layer" not in config:
            hooks.take(str(config["name"]), config["shape"])
            variable = Variable(
                _zeros(config), trainable=bool(config["trainable"]), name=str(config["name"])
            )
            return self._recording.read_variable(variable)
        wholes = self._made[config["layer"]]._wholes()
        if not 0 <= config["weight"] < len(wholes):
            raise ValueError(
                f"model '{self._where}': an op reads weight {config['weight']} of layer "
                f"'{config['layer']}', which has {len(wholes)} then; build it by calling it first"
            )
        return self._recording.read_variable(wholes[config["weight"]])

    def read(self, written: Any) -> Any:
        """The reverse of _Writer.write()."""
        if isinstance(written, list):
            return [self.read(each) for each in written]
        if not isinstance(written, Mapping):
            return written
        kind = written.get("class_name")
        if kind == _TENSOR:
            place = tuple(written["config"])
            if place not in self._values:
                raise ValueError(
                    f"model '{self._where}': its config uses result {place} before it is made"
                )
            return self._values[place]
        if kind in _NAMED:
            return _NAMED[kind](*self.read(written["config"]))
        if kind == "__tuple__":
            return tuple(self.read(written["config"]["value"]))
        if kind is None:
            return {key: self.read(each) for key, each in written.items()}
        return deserialize(written)

    def run(self) -> tuple[Any, Any]:
        calls = [
            (node["order"], index, entry, node)
            for entry in self._config["layers"]
            for index, node in enumerate(entry["inbound_nodes"])
        ]
        for _, index, entry, node in sorted(calls, key=lambda call: call[:1]):
            self._call(entry, index, node)
        return self.read(self._config["input_layers"]), self.read(self._config["output_layers"])


def _zeros(config: Mapping[str, Any]) -> Any:
    shape, dtype = list(config["shape"]), dtypes.as_dtype(config["dtype"])

    def first() -> Any:
        return apply("Fill", (convert(0, dtype),), {"shape": shape})

    return first


def tensors_of(
    where: str, config: Mapping[str, Any], make: Callable[[Any], Any] = deserialize,
    call: Callable[..., Any] | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """The symbolic inputs and outputs of a config of config_of(). `make` gives the layer of an
    entry, call(layer, *args, **kwargs) what it gives."""
    return _Reader(where, config, make, call or _call).run()


def _call(layer: Layer, *args: Any, **kwargs: Any) -> Any:
    return layer(*args, **kwargs)
