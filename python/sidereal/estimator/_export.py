"""Models as files: the graph that predicts, with the values of a checkpoint."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _native, errors, saved_model
from .. import checkpoint as checkpoint_files
from .. import v1 as _v1
from .._dispatch import ENGINE, state
from .._graphs import FuncGraph
from .._native import Output
from ..function import ConcreteFunction, TensorSpec
from ..tensors import constant
from ..v1.graph import Graph
from ..variable import Variable
from ._inputs import checked_receiver

#: How a file is called in its folder.
FILE_NAME = "saved_model.srsm"


class _Values:
    """Variables with the values of a checkpoint, instead of those that get_variable() makes."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._reader = checkpoint_files.load_checkpoint(checkpoint)
        self._made: dict[str, Variable] = {}

    def get(self, getter: Any, name: str, *_: Any, **options: Any) -> Any:
        """A custom_getter."""
        scope = _v1.get_variable_scope().name
        full = f"{scope}/{name}" if scope else name
        if full not in self._made:
            if not self._reader.has_tensor(full):
                raise errors.NotFoundError(
                    f"checkpoint '{self._checkpoint}' has no variable '{full}', which the model "
                    "needs to predict: is it made in training too, under this name?"
                )
            value = self._reader.get_tensor(full)
            trained = bool(options.get("trainable", True))
            with state.at_once():
                self._made[full] = Variable(constant(value), trainable=trained, name=full)
        return self._made[full]


def export(
    base: str, checkpoint: str, receive: Callable[[], Any], call: Callable[[Any], Any],
    assets: Mapping[str, str],
) -> str:  # fmt: skip
    """Writes what call(features) predicts to a new folder in `base`; gives the path of the file."""
    graph = Graph()
    values = _Values(checkpoint)
    with graph.as_default():
        with _v1.variable_scope(_v1.get_variable_scope(), custom_getter=values.get):
            _v1.train.create_global_step(graph)
            features, receivers = checked_receiver(receive())
            spec = call(features)
        functions = {
            name: _function(graph, name, receivers, output.tensors())
            for name, output in spec.export_outputs.items()
        }
    folder = _new_folder(base)
    path = os.path.join(folder, FILE_NAME)
    try:
        for target, source in assets.items():
            place = os.path.join(folder, "assets.extra", target)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(source, place)
        saved_model.save(functions, path, signatures=functions)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return path


def _new_folder(base: str) -> str:
    """A folder called by the seconds since 1970, later than all others there."""
    os.makedirs(base, exist_ok=True)
    stamp = int(time.time())
    while True:
        folder = os.path.join(base, str(stamp))
        try:
            os.mkdir(folder)
        except FileExistsError:
            stamp += 1
        else:
            return folder


def _function(
    graph: Graph, name: str, receivers: Mapping[str, Output], outputs: Mapping[str, Output]
) -> ConcreteFunction:
    # Dicts are flattened in the order of their keys.
    given = [receivers[key] for key in sorted(receivers)]
    flat = [outputs[key] for key in sorted(outputs)]
    captured = list(graph.outside.values())
    copy = _Copy(graph, name, given, flat)
    made = FuncGraph(name, native=copy.native)
    made.outer = None
    made.arguments = [copy.of(value) for value in given]
    made.captures = [(variable, copy.of(place)) for variable, place in captured if copy.has(place)]
    specs = {
        key: TensorSpec(receivers[key].shape, receivers[key].dtype, key)
        for key in sorted(receivers)
    }
    results = [copy.of(value) for value in flat]
    structure = dict(zip(sorted(outputs), results))
    return ConcreteFunction.restore(made, ((), specs), structure, results, [])


class _Copy:
    """What some outputs need of a graph, in a graph of its own."""

    def __init__(
        self, graph: Graph, name: str, inputs: Sequence[Output], outputs: Sequence[Output]
    ) -> None:
        self._graph, self._name = graph, name
        self.native = _native.Graph(ENGINE, ordered=True)
        self._made: dict[int, list[Output]] = {}
        self._numbers: dict[int, int] = {}
        wanted = self._needed([value.node for value in outputs])
        wanted |= {value.node for value in inputs}
        # Nodes come after those that they read.
        for node in range(len(graph.native)):
            if node in wanted:
                self._copy(node)

    def _needed(self, waiting: list[int]) -> set[int]:
        native, seen = self._graph.native, set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if native.node_op(node) == "Variable":
                raise errors.UnimplementedError(
                    f"signature '{self._name}' needs the variable '{native.node_name(node)}', "
                    "which was not made by get_variable(): make it so, then its value of the "
                    "checkpoint is exported"
                )
            waiting += [value.node for value in native.node_inputs(node)]
            waiting += native.node_controls(node)
        return seen

    def _copy(self, node: int) -> None:
        native = self._graph.native
        name, op = native.node_name(node), native.node_op(node)
        attrs = _native.attrs_of(native, node)
        if op == "Placeholder":
            self._made[node] = [self.native.placeholder(name, attrs["dtype"], attrs.get("shape"))]
            self._numbers[node] = len(self.native) - 1
            return
        attrs.pop("_class", None)
        before = [self._numbers[each] for each in native.node_controls(node)]
        inputs = [self.of(value) for value in native.node_inputs(node)]
        made = self.native.add(op, inputs, attrs, name, native.site_of(name), before)
        several = made if isinstance(made, tuple) else [] if made is None else [made]
        self._made[node] = list(several)
        self._numbers[node] = len(self.native) - 1

    def has(self, value: Output) -> bool:
        """Whether a value of the graph is here."""
        return value.node in self._made

    def of(self, value: Output) -> Output:
        """What a value of the graph is here."""
        return self._made[value.node][value.index]
