"""What lies between symbolic inputs and outputs of a model, and how it is done with values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import nest
from .._dispatch import convert
from .._native import Output
from ..dtypes import name_of, string
from ..ops import array, math
from ..ops.ragged import RaggedTensor
from ..variable import Variable
from ._layer import Layer
from ._recording import Key, Node, Reading, is_symbolic, key_of, origin_of


def _units(structure: Any) -> list[Any]:
    """The values of a structure; a RaggedTensor is one."""
    if isinstance(structure, Mapping):
        return [unit for key in sorted(structure) for unit in _units(structure[key])]
    if isinstance(structure, (list, tuple)) and not isinstance(structure, RaggedTensor):
        return [unit for each in structure for unit in _units(each)]
    return [structure]


def _name_of(unit: Any) -> str:
    """The name of what a symbolic tensor comes from."""
    name: str = origin_of(nest.flatten(unit)[0])[0].operation.name
    return name


def _distinct(names: list[str]) -> list[str]:
    made: list[str] = []
    for name in names:
        number = sum(each == name for each in names[: len(made)])
        made.append(f"{name}_{number}" if number else name)
    return made


class Functional:
    """The layers and ops from `inputs` to `outputs`, symbolic tensors or nested ones."""

    def __init__(self, where: str, inputs: Any, outputs: Any) -> None:
        self.where = where
        self.inputs, self.outputs = inputs, outputs
        for what, structure in (("inputs", inputs), ("outputs", outputs)):
            for leaf in nest.flatten(structure):
                if not is_symbolic(leaf):
                    raise ValueError(
                        f"model '{where}': its {what} must be symbolic tensors, which begin with "
                        f"keras.Input(); {leaf!r} is none"
                    )
        self.input_names = [_name_of(unit) for unit in _units(inputs)]
        if isinstance(outputs, Mapping):
            self.output_names = [str(key) for key in sorted(outputs)]
        else:
            self.output_names = _distinct([_name_of(unit) for unit in _units(outputs)])
        visited = self._reached()
        #: All that is done, in the order it was done in.
        self.nodes = sorted(visited, key=lambda node: node.number)
        self._nodes = [
            node for node in self.nodes if node.inputs or not isinstance(node.operation, Layer)
        ]
        self.layers = self._by_depth(visited)
        self._check_names([layer.name for layer in self.layers])
        of_layers = {id(each) for layer in self.layers for each in layer.variables}
        read = [node.operation.value for node in visited if isinstance(node.operation, Reading)]
        #: The variables that ops read and that no layer has.
        self.variables = [
            each for each in read if isinstance(each, Variable) and id(each) not in of_layers
        ]

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            count = names.count(name)
            if count > 1:
                raise ValueError(
                    f"model '{self.where}' has {count} layers called '{name}'; give each a name of "
                    "its own"
                )

    def _reached(self) -> list[Node]:
        """The nodes that the outputs need, as they are met from there."""
        known = {key_of(leaf) for leaf in nest.flatten(self.inputs)}
        given = {id(origin_of(leaf)[0]) for leaf in nest.flatten(self.inputs)}
        found: dict[int, Node] = {}
        waiting: list[Output] = list(reversed(nest.flatten(self.outputs)))
        while waiting:
            leaf = waiting.pop()
            node, _ = origin_of(leaf)
            if id(node) in found or (key_of(leaf) in known and node.inputs):
                continue
            is_input = not node.inputs and isinstance(node.operation, Layer)
            if is_input and id(node) not in given:
                raise ValueError(
                    f"model '{self.where}': its outputs need the input '{node.operation.name}', "
                    f"which is not among its inputs {', '.join(self.input_names)}"
                )
            found[id(node)] = node
            waiting += reversed(node.inputs)
        for leaf in nest.flatten(self.inputs):
            node, _ = origin_of(leaf)
            if not node.inputs:
                found.setdefault(id(node), node)
        return list(found.values())

    def _by_depth(self, visited: list[Node]) -> list[Layer]:
        """The layers, those that are farthest from the outputs first."""
        depths: dict[int, int] = {}
        own: dict[int, int] = {}
        places: dict[int, int] = {}
        layers: dict[int, Any] = {}
        inside = {id(node) for node in visited}
        for place, node in enumerate(visited):
            places.setdefault(id(node.operation), place)
            layers[id(node.operation)] = node.operation
        for node in sorted(visited, key=lambda node: -node.number):
            depth = max(depths.get(id(node), 0), own.get(id(node.operation), 0))
            own[id(node.operation)] = depth
            for leaf in node.inputs:
                before, _ = origin_of(leaf)
                if id(before) in inside:
                    depths[id(before)] = max(depths.get(id(before), 0), depth + 1)
        order = sorted(layers, key=lambda each: (-own[each], places[each]))
        return [layers[each] for each in order if isinstance(layers[each], Layer)]

    def run(self, given: Any) -> Any:
        """The outputs for values of the inputs."""
        values: dict[Key, Any] = {}
        for index, (unit, value) in enumerate(zip(_units(self.inputs), self._placed(given))):
            symbols, leaves = nest.flatten(unit), nest.flatten(value)
            if len(symbols) != len(leaves):
                raise ValueError(
                    f"model '{self.where}': the input '{self.input_names[index]}' is to be a "
                    f"RaggedTensor, not {value!r}"
                )
            for symbol, leaf in zip(symbols, leaves):
                values[key_of(symbol)] = self._fitted(index, symbol, convert(leaf))
        for node in self._nodes:
            if all(key_of(leaf) in values for leaf in node.outputs):
                continue
            for symbol, value in zip(node.outputs, node.run(values)):
                values.setdefault(key_of(symbol), value)
        found = [values[key_of(leaf)] for leaf in nest.flatten(self.outputs)]
        return nest.pack(self.outputs, found)

    def _placed(self, given: Any) -> list[Any]:
        """The values of the inputs in their order."""
        names = self.input_names
        if isinstance(given, Mapping) and isinstance(self.inputs, Mapping):
            names = sorted(self.inputs)
        if isinstance(given, Mapping):
            missing = [name for name in names if given.get(name) is None]
            if missing:
                raise ValueError(
                    f"model '{self.where}': nothing is given for the input '{missing[0]}'; its "
                    f"inputs are {', '.join(names)}, given are {', '.join(map(str, given))}"
                )
            return [given[name] for name in names]
        found = _units(given)
        if len(found) != len(names):
            raise ValueError(
                f"model '{self.where}' has {len(names)} inputs ({', '.join(names)}); {len(found)} "
                "are given"
            )
        return found

    def _fitted(self, index: int, symbol: Output, value: Any) -> Any:
        """A value in the dtype and rank of an input; ValueError if its shape is another one."""
        if (value.dtype == string) != (symbol.dtype == string):
            raise TypeError(
                f"model '{self.where}': the input '{self.input_names[index]}' is "
                f"{name_of(symbol.dtype)}; what is given is {name_of(value.dtype)}"
            )
        if value.dtype != symbol.dtype:
            value = math.cast(value, symbol.dtype)
        wanted, shape = symbol.shape, value.shape
        if wanted is None or shape is None:
            return value
        if len(shape) == len(wanted) - 1 and wanted[-1] == 1:
            return array.expand_dims(value, -1)
        if len(shape) == len(wanted) + 1 and shape[-1] == 1:
            value = array.squeeze(value, -1)
            shape = value.shape
        fits = len(shape) == len(wanted) and all(
            n < 0 or m < 0 or n == m for n, m in zip(shape, wanted)
        )
        if not fits:
            expected = tuple(None if n < 0 else n for n in wanted)
            # Shapes with their unknown extents left open.
            is_row = tuple(shape) == tuple(wanted[1:])
            hint = "; one example is no batch: batch() the dataset" if is_row else ""
            raise ValueError(
                f"model '{self.where}': the input '{self.input_names[index]}' has shape {expected};"
                f" what is given has {tuple(shape)}{hint}"
            )
        return value
